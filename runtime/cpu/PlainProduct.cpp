//===- PlainProduct.cpp - matrix product by packed panels -------------------------===//
//
// The result is cut into tiles that fit the second-level cache together with their operands'
// panels: the tiles are the parallel work, each with the whole sum over k, so that the bits
// of a result do not depend on the number of threads. Within a tile, register tiles of
// Kernels.h run over blocks of k.
//
//===----------------------------------------------------------------------------===//

#include "runtime/cpu/PlainProduct.h"
#include "runtime/cpu/Threads.h"
#include <type_traits>

using namespace mpc;
using namespace mpc::cpu;

template <> const TileKernels<float> &mpc::cpu::tileKernels<float>() { return kernels().tile_f32; }
template <> const TileKernels<double> &mpc::cpu::tileKernels<double>() {
  return kernels().tile_f64;
}

static int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t roundUp(int64_t a, int64_t b) { return ceilDiv(a, b) * b; }

//===----------------------------------------------------------------------------===//
// Sources
//===----------------------------------------------------------------------------===//

template <typename C>
const char *StridedSource<C>::address(int64_t batch, int64_t outer, int64_t p) const {
  int64_t offset = outer * outer_stride;
  offset += batch_inner
                ? batch / batch_inner * batch_outer_stride + batch % batch_inner * batch_stride
                : batch * batch_stride;
  offset += depth_inner ? p / depth_inner * depth_outer_stride + p % depth_inner * depth_stride
                        : p * depth_stride;
  return static_cast<const char *>(base) + offset * int64_t(elementSize(type));
}

template <typename C>
void StridedSource<C>::rows(int64_t batch, int64_t outer, int64_t count, int64_t first,
                            int64_t depth, C *to) const {
  LoadFunction<C> load = loadFunction<C>(type);
  for (int64_t i = 0; i < count; ++i) {
    C *row = to + i * kRowPanelStride;
    for (int64_t p = 0; p < depth;) {
      int64_t run = depth - p;
      if (depth_inner)
        run = std::min(run, depth_inner - (first + p) % depth_inner);
      load(address(batch, outer + i, first + p), row + p, run);
      p += run;
    }
  }
}

template <typename C>
void StridedSource<C>::columns(int64_t batch, int64_t outer, int64_t count, int64_t first,
                               int64_t depth, C *to, int64_t width) const {
  LoadFunction<C> load = loadFunction<C>(type);
  size_t size = elementSize(type);
  for (int64_t p = 0; p < depth; ++p, to += width) {
    const char *from = address(batch, outer, first + p);
    if (outer_stride == 1)
      load(from, to, count);
    else
      for (int64_t i = 0; i < count; ++i)
        load(from + i * outer_stride * int64_t(size), to + i, 1);
    std::fill(to + count, to + width, C(0));
  }
}

//===----------------------------------------------------------------------------===//
// Packing
//===----------------------------------------------------------------------------===//

// to[p · width + i] = from[i · kRowPanelStride + p], in squares of four so that stores are whole;
// zeros for count ≤ i < columns.
template <typename C>
static void transposePanel(const C *from, int64_t count, int64_t depth, C *to, int64_t width,
                           int64_t columns) {
  typedef C V __attribute__((vector_size(4 * sizeof(C)), aligned(sizeof(C)), may_alias));
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const C *r = from + i * kRowPanelStride;
    int64_t p = 0;
    for (; p + 4 <= depth; p += 4) {
      V a = *reinterpret_cast<const V *>(r + p);
      V b = *reinterpret_cast<const V *>(r + kRowPanelStride + p);
      V c = *reinterpret_cast<const V *>(r + 2 * kRowPanelStride + p);
      V d = *reinterpret_cast<const V *>(r + 3 * kRowPanelStride + p);
      V ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5),
        ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
      V cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5),
        cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
      C *t = to + p * width + i;
      *reinterpret_cast<V *>(t) = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5);
      *reinterpret_cast<V *>(t + width) = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
      *reinterpret_cast<V *>(t + 2 * width) = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5);
      *reinterpret_cast<V *>(t + 3 * width) = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
    }
    for (; p < depth; ++p)
      for (int64_t j = 0; j < 4; ++j)
        to[p * width + i + j] = r[j * kRowPanelStride + p];
  }
  for (; i < count; ++i)
    for (int64_t p = 0; p < depth; ++p)
      to[p * width + i] = from[i * kRowPanelStride + p];
  if (count < columns)
    for (int64_t p = 0; p < depth; ++p)
      std::fill(to + p * width + count, to + p * width + columns, C(0));
}

template <typename C>
static void packColumns(const PanelSource<C> &source, int64_t batch, int64_t outer, int64_t count,
                        int64_t first, int64_t depth, C *to, int64_t width) {
  if (!source.depthRuns())
    return source.columns(batch, outer, count, first, depth, to, width);
  // At most 8 rows at a time: they stay in the first-level cache.
  constexpr int64_t group = 8;
  alignas(64) C rows[group * kRowPanelStride];
  for (int64_t i = 0; i < width; i += group) {
    int64_t here = std::clamp<int64_t>(count - i, 0, group);
    if (here)
      source.rows(batch, outer + i, here, first, depth, rows);
    transposePanel(rows, here, depth, to + i, width, std::min(group, width - i));
  }
}

int64_t mpc::cpu::packedElements(int64_t batch, int64_t outer, int64_t k, int64_t width) {
  return batch * roundUp(outer, width) * k;
}

// A packed operand: for each batch, for each block of depth, for each panel: [depth of the
// block][width].
static int64_t packedOffset(int64_t batch, int64_t outer_size, int64_t k, int64_t width,
                            int64_t panel, int64_t first, int64_t depth) {
  int64_t padded = roundUp(outer_size, width);
  return batch * padded * k + first * padded + panel * width * depth;
}

template <typename C>
void mpc::cpu::packOperand(const PanelSource<C> &source, int64_t batch, int64_t outer, int64_t k,
                           int64_t width, C *to, int threads) {
  int64_t panels = ceilDiv(outer, width), blocks = ceilDiv(k, kPanelDepth);
  parallelRanges(batch * panels * blocks, 4, threads, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      int64_t panel = index % panels, first = index / panels % blocks * kPanelDepth;
      int64_t b = index / panels / blocks, depth = std::min(kPanelDepth, k - first);
      packColumns(source, b, panel * width, std::min(width, outer - panel * width), first, depth,
                  to + packedOffset(b, outer, k, width, panel, first, depth), width);
    }
  });
}

//===----------------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------------===//

template <typename C>
void Epilogue<C>::apply(int64_t batch, int64_t i, int64_t j, int64_t count, C *row) const {
  int64_t offset = batch % batch_modulus * bias_batch_stride;
  if (column_bias)
    for (int64_t x = 0; x < count; ++x)
      row[x] += column_bias[offset + j + x];
  if (row_bias)
    for (int64_t x = 0; x < count; ++x)
      row[x] += row_bias[offset + i];
  if (relu)
    for (int64_t x = 0; x < count; ++x)
      row[x] = row[x] < 0 ? C(0) : row[x];
}

template <typename C>
void mpc::cpu::storeStrided(ElementType type, const C *from, void *to, int64_t stride,
                            int64_t count) {
  StoreFunction<C> store = storeFunction<C>(type);
  if (stride == 1)
    return store(from, to, count);
  int64_t bytes = stride * int64_t(elementSize(type));
  for (int64_t x = 0; x < count; ++x)
    store(from + x, static_cast<char *>(to) + x * bytes, 1);
}

template <typename C>
void StridedSink<C>::store(int64_t batch, int64_t i, int64_t j, int64_t count, C *row) const {
  epilogue.apply(batch, i, j, count, row);
  int64_t offset = i * row_stride + j * column_stride;
  offset += batch_inner
                ? batch / batch_inner * batch_outer_stride + batch % batch_inner * batch_stride
                : batch * batch_stride;
  storeStrided(type, row, static_cast<char *>(base) + offset * int64_t(elementSize(type)),
               column_stride, count);
}

//===----------------------------------------------------------------------------===//
// The product
//===----------------------------------------------------------------------------===//

namespace {

// Sums and panels of a full tile take about 0.9 MiB, of a second-level cache of 1 MiB or more.
constexpr int64_t kTileRows = 288, kTileColumnBytes = 1024;

// Operations (multiply and add) below which a second thread costs more than it brings;
// bench/library_bench.
constexpr int64_t kSerialOperations = 200'000;

struct Tiling {
  int64_t m, n; // of a tile
  int64_t tiles_m, tiles_n, tiles;
  int threads;
  int64_t panels_lhs, panels_rhs, sums; // elements of scratch per thread
};

template <typename C> Tiling tiling(const Product<C> &p, int threads) {
  const TileKernels<C> &kernel = tileKernels<C>();
  Tiling t;
  t.m = std::min(roundUp(std::max<int64_t>(p.m, 1), kernel.rows), kTileRows);
  t.n = std::min(roundUp(std::max<int64_t>(p.n, 1), kernel.columns),
                 int64_t(kTileColumnBytes / sizeof(C)));
  bool serial = double(p.batch) * p.m * p.n * std::max<int64_t>(p.k, 1) < kSerialOperations;
  t.threads = serial ? 1 : threads;
  auto count = [&] { return p.batch * ceilDiv(p.m, t.m) * ceilDiv(p.n, t.n); };
  // Smaller tiles until every thread has some.
  while (t.threads > 1 && count() < 3 * t.threads) {
    if (t.n > kernel.columns && (t.n >= t.m || t.m <= kernel.rows))
      t.n = roundUp(t.n / 2, kernel.columns);
    else if (t.m > kernel.rows)
      t.m = roundUp(t.m / 2, kernel.rows);
    else
      break;
  }
  t.tiles_m = ceilDiv(p.m, t.m);
  t.tiles_n = ceilDiv(p.n, t.n);
  t.tiles = p.batch * t.tiles_m * t.tiles_n;
  if (t.tiles <= 1)
    t.threads = 1;
  int64_t depth = std::min(p.k, kPanelDepth);
  t.panels_lhs = p.packed_lhs ? 0 : p.lhs->depthRuns() ? t.m * kRowPanelStride : t.m * depth;
  t.panels_rhs = p.packed_rhs ? 0 : t.n * depth;
  t.sums = t.m * t.n;
  // Every thread's scratch starts at its own cache line.
  for (int64_t *size : {&t.panels_lhs, &t.panels_rhs, &t.sums})
    *size = roundUp(*size, 16);
  return t;
}

template <typename C> class TileWorker {
public:
  TileWorker(const Product<C> &p, const Tiling &t, C *scratch)
      : p(p), t(t), kernel(tileKernels<C>()), own_lhs(scratch), own_rhs(own_lhs + t.panels_lhs),
        sums(own_rhs + t.panels_rhs) {}

  // Neighboring indices share the right operand's panels.
  void run(int64_t index) {
    batch = index / (t.tiles_m * t.tiles_n);
    row0 = index % t.tiles_m * t.m;
    column0 = index / t.tiles_m % t.tiles_n * t.n;
    rows = std::min(t.m, p.m - row0);
    columns = std::min(t.n, p.n - column0);
    for (int64_t first = 0; first < p.k || first == 0; first += kPanelDepth)
      block(first, std::min(kPanelDepth, p.k - first));
    for (int64_t i = 0; i < rows; ++i)
      p.sink->store(batch, row0 + i, column0, columns, sums + i * t.n);
  }

private:
  void block(int64_t first, int64_t depth) {
    int64_t mr = kernel.rows, nr = kernel.columns;
    int64_t packed_batch = batch % p.packed_batches;
    bool row_panels = !p.packed_lhs && p.lhs->depthRuns();
    int64_t lhs_panel = row_panels ? mr * kRowPanelStride : mr * depth;
    const C *lhs = own_lhs, *rhs = own_rhs;
    if (p.packed_lhs)
      lhs = p.packed_lhs + packedOffset(packed_batch, p.m, p.k, mr, row0 / mr, first, depth);
    if (p.packed_rhs)
      rhs = p.packed_rhs + packedOffset(packed_batch, p.n, p.k, nr, column0 / nr, first, depth);
    if (!p.packed_lhs)
      packLhs(first, depth, lhs_panel, row_panels);
    if (!p.packed_rhs)
      packRhs(first, depth);
    const TileFunction<C> *functions = row_panels ? kernel.from_rows : kernel.from_columns;
    for (int64_t j = 0; j < columns; j += nr)
      for (int64_t i = 0; i < rows; i += mr)
        functions[std::min(mr, rows - i)](depth, lhs + i / mr * lhs_panel, rhs + j * depth,
                                          sums + i * t.n + j, t.n, first != 0);
  }

  void packLhs(int64_t first, int64_t depth, int64_t lhs_panel, bool row_panels) {
    if (!row_panels)
      return packAcross(*p.lhs, row0, rows, first, depth, own_lhs, kernel.rows);
    for (int64_t i = 0; i < rows; i += kernel.rows)
      p.lhs->rows(batch, row0 + i, std::min<int64_t>(kernel.rows, rows - i), first, depth,
                  own_lhs + i / kernel.rows * lhs_panel);
  }

  void packRhs(int64_t first, int64_t depth) {
    // With one block of depth, the tile before may have left the same panels.
    if (p.k <= kPanelDepth && held_batch == batch && held_column == column0)
      return;
    held_batch = batch;
    held_column = column0;
    int64_t nr = kernel.columns;
    if (!p.rhs->depthRuns())
      return packAcross(*p.rhs, column0, columns, first, depth, own_rhs, nr);
    for (int64_t j = 0; j < columns; j += nr)
      packColumns(*p.rhs, batch, column0 + j, std::min(nr, columns - j), first, depth,
                  own_rhs + j * depth, nr);
  }

  // Column panels, a few rows of memory over all panels at a time: a whole panel would touch a page
  // per row.
  void packAcross(const PanelSource<C> &source, int64_t outer, int64_t count, int64_t first,
                  int64_t depth, C *to, int64_t width) {
    constexpr int64_t group = 16;
    for (int64_t q = 0; q < depth; q += group)
      for (int64_t i = 0; i < count; i += width)
        source.columns(batch, outer + i, std::min(width, count - i), first + q,
                       std::min(group, depth - q), to + i * depth + q * width, width);
  }

  const Product<C> &p;
  const Tiling &t;
  const TileKernels<C> &kernel;
  C *own_lhs, *own_rhs, *sums;
  int64_t batch = 0, row0 = 0, column0 = 0, rows = 0, columns = 0;
  int64_t held_batch = -1, held_column = -1;
};

} // namespace

template <typename C> int64_t mpc::cpu::productScratch(const Product<C> &product, int threads) {
  Tiling t = tiling(product, threads);
  return t.threads * (t.panels_lhs + t.panels_rhs + t.sums);
}

template <typename C> void mpc::cpu::multiply(const Product<C> &p, int threads, C *scratch) {
  Tiling t = tiling(p, threads);
  if (t.tiles <= 0)
    return;
  int64_t own = t.panels_lhs + t.panels_rhs + t.sums;
  if (t.threads <= 1) {
    TileWorker<C> worker(p, t, scratch);
    for (int64_t index = 0; index < t.tiles; ++index)
      worker.run(index);
    return;
  }
#pragma omp parallel num_threads(t.threads)
  {
    TileWorker<C> worker(p, t, scratch + omp_get_thread_num() * own);
#pragma omp for schedule(dynamic)
    for (int64_t index = 0; index < t.tiles; ++index)
      worker.run(index);
  }
}

namespace mpc::cpu {
#define MPC_INSTANTIATE(C)                                                                         \
  template class StridedSource<C>;                                                                 \
  template struct Epilogue<C>;                                                                     \
  template class StridedSink<C>;                                                                   \
  template void storeStrided(ElementType, const C *, void *, int64_t, int64_t);                    \
  template void packOperand(const PanelSource<C> &, int64_t, int64_t, int64_t, int64_t, C *, int); \
  template int64_t productScratch(const Product<C> &, int);                                        \
  template void multiply(const Product<C> &, int, C *);
MPC_INSTANTIATE(float)
MPC_INSTANTIATE(double)
#undef MPC_INSTANTIATE
} // namespace mpc::cpu

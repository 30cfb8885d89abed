//===- PlainProduct.h - matrix product by packed panels ---------------------------===//
//
// result[b, i, j] = Σ_p lhs(b, i, p)·rhs(b, p, j), in C = float or double, where operands and
// result are wherever a source reads them from and a sink writes them to: strided matrices
// of any element type, patches of an image (convolutions). Widening, transposition and
// im2col happen while a panel is packed, in cache; the result is rounded once.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CPU_PLAINPRODUCT_H
#define MPC_RUNTIME_CPU_PLAINPRODUCT_H

#include "runtime/cpu/Kernels.h"
#include "runtime/cpu/Widen.h"

namespace mpc::cpu {

/// An operand seen as [outer, depth]: outer is the row of the left operand or the column of the
/// right one. A source writes the panels that lie along its memory: row panels if depthRuns(),
/// otherwise column panels.
template <typename C> class PanelSource {
public:
  virtual ~PanelSource() = default;
  virtual bool depthRuns() const = 0;
  /// to[i · kRowPanelStride + p] for i < count, p < depth ≤ kPanelDepth.
  virtual void rows(int64_t batch, int64_t outer, int64_t count, int64_t first, int64_t depth,
                    C *to) const {}
  /// to[p · width + i] for i < count, zeros for count ≤ i < width.
  virtual void columns(int64_t batch, int64_t outer, int64_t count, int64_t first, int64_t depth,
                       C *to, int64_t width) const {}
};

/// A matrix in memory: element (i, p) of batch b is at base + (b · batch_stride + i · outer_stride
/// + depth offset) elements. The depth is split in two where depth_inner > 0: p = q · depth_inner +
/// r is at q · depth_outer_stride + r · depth_stride (pixels of a batch of channel-first images).
template <typename C> class StridedSource : public PanelSource<C> {
public:
  const void *base = nullptr;
  ElementType type{};
  int64_t batch_stride = 0, outer_stride = 0, depth_stride = 0;
  int64_t depth_inner = 0, depth_outer_stride = 0;
  int64_t batch_inner = 0, batch_outer_stride = 0; ///< the same split of the batch index

  bool depthRuns() const override { return depth_stride == 1 && outer_stride != 1; }
  void rows(int64_t batch, int64_t outer, int64_t count, int64_t first, int64_t depth,
            C *to) const override;
  void columns(int64_t batch, int64_t outer, int64_t count, int64_t first, int64_t depth, C *to,
               int64_t width) const override;

private:
  const char *address(int64_t batch, int64_t outer, int64_t p) const;
};

/// Where results go: called for finished pieces of rows, from several threads.
template <typename C> class ResultSink {
public:
  virtual ~ResultSink() = default;
  /// row[0, count) are the results (batch, i, j …); may be overwritten.
  virtual void store(int64_t batch, int64_t i, int64_t j, int64_t count, C *row) const = 0;
};

/// Adds a bias and applies relu (NaN stays NaN) to a piece of a row.
template <typename C> struct Epilogue {
  const C *column_bias = nullptr, *row_bias = nullptr;
  int64_t bias_batch_stride = 0,
          batch_modulus = 1; ///< bias of batch b starts at (b mod modulus)·stride
  bool relu = false;
  void apply(int64_t batch, int64_t i, int64_t j, int64_t count, C *row) const;
};

template <typename C> class StridedSink : public ResultSink<C> {
public:
  void *base = nullptr;
  ElementType type{};
  int64_t batch_stride = 0, row_stride = 0, column_stride = 1;
  int64_t batch_inner = 0, batch_outer_stride = 0;
  Epilogue<C> epilogue;
  void store(int64_t batch, int64_t i, int64_t j, int64_t count, C *row) const override;
};

/// Writes `count` results `stride` elements apart.
template <typename C>
void storeStrided(ElementType type, const C *from, void *to, int64_t stride, int64_t count);

template <typename C> struct Product {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  const PanelSource<C> *lhs = nullptr, *rhs = nullptr;
  const C *packed_lhs = nullptr, *packed_rhs = nullptr; ///< instead of a source, by packOperand
  int64_t packed_batches = 1;                           ///< a packed operand's batch is b mod this
  const ResultSink<C> *sink = nullptr;
};

template <typename C> const TileKernels<C> &tileKernels();

/// Elements that a whole packed operand takes; `width` is the tile's rows (left operand) or columns
/// (right one).
int64_t packedElements(int64_t batch, int64_t outer, int64_t k, int64_t width);
template <typename C>
void packOperand(const PanelSource<C> &source, int64_t batch, int64_t outer, int64_t k,
                 int64_t width, C *to, int threads);

/// Scratch that multiply needs for this number of threads, in elements.
template <typename C> int64_t productScratch(const Product<C> &product, int threads);
/// The sum over k is taken in the same order whatever the number of threads.
template <typename C> void multiply(const Product<C> &product, int threads, C *scratch);

} // namespace mpc::cpu

#endif // MPC_RUNTIME_CPU_PLAINPRODUCT_H

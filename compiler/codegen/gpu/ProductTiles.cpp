//===- ProductTiles.cpp - a tile's product, by tensor cores or in registers -------------===//

#include "compiler/codegen/gpu/TensorCores.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace mpc::gpu {

Value addressOf(GpuEmitter &e, Value pointer, Type element, Value index) {
  return LLVM::GEPOp::create(e.here(), e.loc, pointer.getType(), element, pointer,
                             ArrayRef<LLVM::GEPArg>{index}, LLVM::GEPNoWrapFlags::inbounds);
}

static Value number(GpuEmitter &e, int64_t value) {
  return arith::ConstantOp::create(e.here(), e.loc, e.here().getI32IntegerAttr(value));
}

Value elementAt(GpuEmitter &e, Value vector, int64_t i) {
  if (!isa<VectorType>(vector.getType()))
    return vector;
  return LLVM::ExtractElementOp::create(e.here(), e.loc, vector, number(e, i));
}

void storeBytes(GpuEmitter &e, Value pointer, Type element, const Affine &first, Value value,
                int64_t bytes) {
  Value address = addressOf(e, pointer, element, e.index(first));
  LLVM::StoreOp::create(e.here(), e.loc, value, address, bytes);
}

SmallVector<Value> loadTogether(GpuEmitter &e, Value pointer, Type element, const Affine &first,
                                int64_t count) {
  Value address = addressOf(e, pointer, element, e.index(first));
  Type type = count == 1 ? element : VectorType::get(count, element);
  Value loaded = LLVM::LoadOp::create(e.here(), e.loc, type, address, count * storedBytes(element));
  SmallVector<Value> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(elementAt(e, loaded, i));
  return values;
}

Value joined(GpuEmitter &e, ValueRange values) {
  if (values.size() == 1)
    return values[0];
  Type type = VectorType::get(values.size(), values[0].getType());
  Value all = LLVM::PoisonOp::create(e.here(), e.loc, type);
  for (auto [i, value] : llvm::enumerate(values))
    all = LLVM::InsertElementOp::create(e.here(), e.loc, all, value, number(e, i));
  return all;
}

void storeTogether(GpuEmitter &e, Value pointer, const Affine &first, ValueRange values) {
  Type element = values[0].getType();
  storeBytes(e, pointer, element, first, joined(e, values), values.size() * storedBytes(element));
}

//===----------------------------------------------------------------------------------===//
// Tensor cores
//===----------------------------------------------------------------------------------===//

namespace {
class TensorCoreProduct : public TileProduct {
public:
  TensorCoreProduct(GpuEmitter &e, const ProductTile &tile, Mma mma, Type element)
      : rows(tile.rows / tile.warpRows),
        columns(tile.columns / (tile.threads / kWarp / tile.warpRows)) {
    auto [warp, lane] = e.divide(e.thread, kWarp);
    cores = createTensorCores(e, mma, element, lane);
    std::tie(warpRow, warpColumn) = e.divide(warp, tile.threads / kWarp / tile.warpRows);
  }

  SmallVector<Value> multiply(const SharedTile &left, const SharedTile &right,
                              ValueRange sums) override;
  SmallVector<SumRun> runs() override;

private:
  static constexpr int64_t kRows = TensorCores::kRows, kColumns = TensorCores::kColumns,
                           kDepth = TensorCores::kDepth, kSums = TensorCores::kSums;

  int64_t rows, columns; ///< of a warp
  Affine warpRow, warpColumn;
  std::unique_ptr<TensorCores> cores;
};
} // namespace

SmallVector<Value> TensorCoreProduct::multiply(const SharedTile &left, const SharedTile &right,
                                               ValueRange sums) {
  SmallVector<Value> next(sums);
  for (int64_t k = 0; k < tileDepth(/*tensorCores=*/true); k += kDepth) {
    SmallVector<TensorCores::Fragment> a, b;
    for (int64_t i = 0; i < rows; i += kRows)
      a.push_back(cores->load(left, warpRow * rows + i, k, TensorCores::kLeft));
    for (int64_t j = 0; j < columns; j += kColumns)
      b.push_back(cores->load(right, warpColumn * columns + j, k, TensorCores::kRight));
    size_t sum = 0;
    for (const TensorCores::Fragment &x : a)
      for (const TensorCores::Fragment &y : b) {
        llvm::copy(cores->multiplyAdd(x, y, ArrayRef(next).slice(sum, kSums)), next.begin() + sum);
        sum += kSums;
      }
  }
  return next;
}

SmallVector<SumRun> TensorCoreProduct::runs() {
  SmallVector<SumRun> runs;
  int64_t sum = 0;
  for (int64_t i = 0; i < rows; i += kRows)
    for (int64_t j = 0; j < columns; j += kColumns)
      for (const Affine &column : cores->columns)
        for (const Affine &row : cores->rows) {
          runs.push_back({warpRow * rows + row + Affine(i),
                          warpColumn * columns + column + Affine(j), sum, 2});
          sum += 2;
        }
  return runs;
}

std::unique_ptr<TileProduct> createTensorCoreProduct(GpuEmitter &e, const ProductTile &tile,
                                                     Mma mma, Type element) {
  return std::make_unique<TensorCoreProduct>(e, tile, mma, element);
}

//===----------------------------------------------------------------------------------===//
// Registers
//===----------------------------------------------------------------------------------===//

namespace {
// Thread (y, x) of 16 rows of threads has the rows y · g + i + 16 · g · q of the tile, for i < g:
// g of them are one access, and threads side by side read side by side. Columns likewise.
class RegisterProduct : public TileProduct {
public:
  RegisterProduct(GpuEmitter &e, const ProductTile &tile, Type accumulator)
      : e(e), accumulator(accumulator) {
    int64_t threadColumns = tile.threads / kThreadRows;
    auto [y, x] = e.divide(e.thread, threadColumns);
    row = side(y, kThreadRows, tile.rows);
    column = side(x, threadColumns, tile.columns);
  }

  SmallVector<Value> multiply(const SharedTile &left, const SharedTile &right,
                              ValueRange sums) override;
  SmallVector<SumRun> runs() override;

private:
  static constexpr int64_t kThreadRows = 16;
  static constexpr int64_t kUnrolled = 64; ///< multiplications that are written out, at least

  struct Side {
    Affine place;
    int64_t count, together, distance;
    Affine at(int64_t i) const {
      return place * together + Affine(i / together * distance + i % together);
    }
  };
  Side side(const Affine &place, int64_t threads, int64_t extent) const {
    int64_t count = extent / threads, together = dividing(count, 16 / storedBytes(accumulator));
    return {place, count, together, threads * together};
  }
  SmallVector<Value> load(const SharedTile &tile, const Side &side, const Affine &depth) {
    SmallVector<Value> values;
    for (int64_t i = 0; i < side.count; i += side.together)
      llvm::append_range(values, loadTogether(e, tile.memory, accumulator,
                                              tile.at(side.at(i), depth), side.together));
    return values;
  }

  GpuEmitter &e;
  Type accumulator;
  Side row, column;
};
} // namespace

SmallVector<Value> RegisterProduct::multiply(const SharedTile &left, const SharedTile &right,
                                             ValueRange sums) {
  int64_t depth = tileDepth(/*tensorCores=*/false);
  int64_t unrolled = std::clamp<int64_t>(kUnrolled / (row.count * column.count), 1, depth);
  return e.loop(depth / unrolled, 0, sums, [&](const Affine &step, ValueRange carried) {
    SmallVector<Value> next(carried);
    for (int64_t u = 0; u < unrolled; ++u) {
      Affine k = step * unrolled + u;
      SmallVector<Value> a = load(left, row, k), b = load(right, column, k);
      for (auto [i, x] : llvm::enumerate(a))
        for (auto [j, y] : llvm::enumerate(b)) {
          Value &sum = next[i * b.size() + j];
          sum = math::FmaOp::create(e.here(), e.loc, x, y, sum);
        }
    }
    return next;
  });
}

SmallVector<SumRun> RegisterProduct::runs() {
  SmallVector<SumRun> runs;
  for (int64_t i = 0; i < row.count; ++i)
    for (int64_t j = 0; j < column.count; j += column.together)
      runs.push_back({row.at(i), column.at(j), i * column.count + j, column.together});
  return runs;
}

std::unique_ptr<TileProduct> createRegisterProduct(GpuEmitter &e, const ProductTile &tile,
                                                   Type accumulator) {
  return std::make_unique<RegisterProduct>(e, tile, accumulator);
}

} // namespace mpc::gpu

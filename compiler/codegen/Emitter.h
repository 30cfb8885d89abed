//===- Emitter.h - scalar code of a kernel, by demand ------------------------------===//
//
// One Emitter writes one native function. A result's element at an index asks its operands
// for theirs: index maps cost no memory, and a value is computed where its index is known.
// Code whose index does not depend on the innermost loop is placed outside of it: every
// index base belongs to a scope (function, row loop, inner loop, guarded branch), and a
// value is computed in the deepest scope of its index.
//
// The scalar part does not know the target; loops are scf.for, memory is llvm.load and
// llvm.store on one pointer per buffer. What a function looks like from outside is its frame:
// a range of positions on the CPU (this file's constructor), a grid of threads on a GPU
// (gpu/GpuEmitter.h).
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_CODEGEN_EMITTER_H
#define MPC_CODEGEN_EMITTER_H

#include "compiler/codegen/Loops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseMap.h"
#include <functional>
#include <optional>
#include <tuple>

namespace mlir::scf {
class ForOp;
}

namespace mpc {

/// Of a kernel, for the Emitter: elements that the CPU rounds to bf16 at once. None: it has no
/// instruction for that.
inline constexpr llvm::StringLiteral kBf16WidthAttr = "mpc.bf16_width";

/// What random numbers are a function of, beside their index (mpc.random_uniform).
struct RandomStream {
  mlir::Value run, micro;       ///< i64: the elements of the state
  mlir::Value operatorId, seed; ///< i64
  bool operator<(const RandomStream &other) const {
    auto key = [](const RandomStream &s) {
      return std::tuple(s.run.getAsOpaquePointer(), s.micro.getAsOpaquePointer(),
                        s.operatorId.getAsOpaquePointer(), s.seed.getAsOpaquePointer());
    };
    return key(*this) < key(other);
  }
};

class Emitter : public IndexSpace {
public:
  /// Adds NAME (the function of Program.h's MpcKernel) and NAME.body in front of `kernel`.
  Emitter(mlir::func::FuncOp kernel, llvm::StringRef name);
  virtual ~Emitter() = default;
  /// Ends the function; fails where the body held something that cannot be emitted (reported at the
  /// operation).
  llvm::LogicalResult finish();

  mlir::func::FuncOp kernel;
  mlir::Location loc;
  mlir::Value begin, end;                            ///< i64
  mlir::Value scratch;                               ///< kind column only
  llvm::SmallVector<mlir::Value> arguments, results; ///< pointers

  /// Asked first for every value: row and column kernels answer for reductions and cached values.
  /// Null: no answer.
  std::function<mlir::Value(mlir::Value, const Affine &)> resolve;

  // Scopes.
  unsigned depth() const { return scopes.size() - 1; }
  using IndexSpace::depth;
  /// The builder, at the end of what a scope has so far.
  mlir::OpBuilder &at(unsigned depth);
  mlir::OpBuilder &here() { return at(depth()); }

  using LoopBody =
      llvm::function_ref<llvm::SmallVector<mlir::Value>(const Affine &, mlir::ValueRange)>;
  /// for i = low; i < high; i += step, in the innermost scope, carrying `inits`. i lies in [min,
  /// max]; `unit` as in IndexSpace::Base.
  llvm::SmallVector<mlir::Value> loop(mlir::Value low, mlir::Value high, int64_t step, int64_t min,
                                      int64_t max, int64_t unit, mlir::ValueRange inits,
                                      LoopBody body);
  /// for i = 0; i < extent: no loop at all where extent is 1.
  llvm::SmallVector<mlir::Value> loop(int64_t extent, int64_t unit, mlir::ValueRange inits,
                                      LoopBody body);
  /// The loop that gave this value is not unrolled.
  static void keepLoop(mlir::Value carried);
  /// Positions [begin, end) of [0, extent).
  void rangeLoop(int64_t extent, int64_t unit, llvm::function_ref<void(const Affine &)> body);
  /// if (condition) body, in the innermost scope; a null condition always holds.
  void guarded(mlir::Value condition, llvm::function_ref<void()> body);

  // Indices.
  mlir::Value index(const Affine &index); ///< its value, in the scope it belongs to
  mlir::Value constant(int64_t value) { return index(Affine(value)); }
  /// 0 ≤ index < size, or null where that always holds.
  mlir::Value inside(const Affine &index, int64_t size);
  mlir::Value both(mlir::Value a, mlir::Value b, unsigned depth); ///< and, null being true
  /// The nearest of [0, size).
  Affine clamped(const Affine &index, int64_t size);
  /// The same index, known to be in [0, size) in a branch or by its origin.
  Affine known(const Affine &index, int64_t size, unsigned depth);

  // Memory. Elements are as the program sees them: i1 is converted from and to bytes.
  /// An argument's element: computed where its index is known.
  mlir::Value load(mlir::Value pointer, mlir::Type element, const Affine &index) {
    return load(pointer, element, index, depth(index));
  }
  /// An element of memory that this function writes too: read now.
  mlir::Value loadHere(mlir::Value pointer, mlir::Type element, const Affine &index) {
    return load(pointer, element, index, depth());
  }
  void store(mlir::Value pointer, mlir::Value scalar, const Affine &index);
  /// An array in the function's frame.
  mlir::Value array(mlir::Type element, int64_t count);

  // Elements.
  mlir::Value emit(mlir::Value tensor, const Affine &at);
  /// What emit() has computed for this element; null if nothing.
  mlir::Value emitted(mlir::Value tensor, const Affine &at) const;
  mlir::Value convert(mlir::Value scalar, mlir::Type type,
                      unsigned depth); ///< between float types; itself otherwise
  /// 32 random bits (i32), of which random_uniform has the upper 24.
  mlir::Value randomWord(const RandomStream &stream, const Affine &at);
  /// Those of four neighbors: of the elements from 4 · counter on.
  llvm::ArrayRef<mlir::Value> randomWords(const RandomStream &stream, const Affine &counter);
  /// words[which], of four.
  mlir::Value oneOf(llvm::ArrayRef<mlir::Value> words, const Affine &which, unsigned depth);
  mlir::Value identity(ReductionKind kind, mlir::Type type);
  /// `reassociate`: partial sums of an innermost loop, which LLVM may keep per vector lane.
  mlir::Value accumulate(mlir::OpBuilder &b, ReductionKind kind, mlir::Value sum, mlir::Value x,
                         bool reassociate);
  /// A reduction whose value an innermost loop carries: where it starts, a step in the innermost
  /// scope, and the accumulator at the end.
  mlir::Value startCarried(ReduceOp reduce);
  mlir::Value carryOn(ReduceOp reduce, mlir::Value carried, mlir::Value x);
  mlir::Value endCarried(ReduceOp reduce, mlir::Value carried);
  /// The operand of a reduction at an element, in the accumulator's type.
  mlir::Value operandOf(ReduceOp reduce, const Affine &at);
  static mlir::Type accumulatorOf(ReduceOp reduce);

  void fail(mlir::Operation *op, const llvm::Twine &why);

protected:
  /// For another frame: the caller makes the function and then calls enter().
  explicit Emitter(mlir::func::FuncOp kernel);
  /// The body's entry block; its pointers, one per distinct buffer (distinctBuffers()), begin at
  /// argument `first`.
  void enter(mlir::Block *block, unsigned first);
  std::pair<mlir::Value, mlir::Value> divideValues(const Affine &index, int64_t divisor) override;
  mlir::OpBuilder builder;

private:
  mlir::Value load(mlir::Value pointer, mlir::Type element, const Affine &index, unsigned depth);

  struct Scope {
    mlir::Block *block;
    mlir::Operation *child; ///< what is being built inside; code of this scope goes before it
  };
  using Branch = llvm::function_ref<mlir::Value(unsigned depth)>;
  /// `condition ? then : otherwise`, each computed only if needed, in the scope `parent`.
  mlir::Value branch(mlir::Value condition, unsigned parent, mlir::Type type, Branch then,
                     Branch otherwise);

  mlir::Value emitOperation(mlir::Value tensor, const Affine &at);
  mlir::Value emitElementwise(mlir::Operation *op, const Affine &at);
  mlir::Value emitPower(mlir::math::PowFOp op, const Affine &at);
  mlir::Value emitConstant(mlir::arith::ConstantOp op);
  mlir::Value emitPad(PadOp op, const Affine &at);
  mlir::Value emitConcat(ConcatOp op, const Affine &at);
  mlir::Value emitGather(GatherOp op, const Affine &at);
  mlir::Value emitIota(IotaOp op, const Affine &at);
  mlir::Value emitRandom(RandomUniformOp op, const Affine &at);
  mlir::Value emitMaxPool(MaxPoolOp op, mlir::Value result, const Affine &at);
  mlir::Value emitAveragePool(AveragePoolOp op, const Affine &at);
  mlir::Value emitMaxPoolGrad(MaxPoolGradOp op, const Affine &at);
  mlir::Value emitAveragePoolGrad(AveragePoolGradOp op, const Affine &at);

  /// A cell of a window: its place in the window, and whether it exists (null: always).
  struct Cell {
    llvm::SmallVector<Affine> index; ///< of the other tensor, all dimensions
    Affine place;                    ///< row-major in the window
    mlir::Value valid;
  };
  using CellBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(const Cell &, mlir::ValueRange,
                                                                     unsigned depth)>;
  /// All cells of the window of output `indices` (forward), in row-major order.
  llvm::SmallVector<mlir::Value> forwardCells(const PoolWindow &window,
                                              llvm::ArrayRef<Affine> indices,
                                              llvm::ArrayRef<int64_t> input, mlir::ValueRange inits,
                                              CellBody body);
  /// All windows that cover input `indices` (backward).
  llvm::SmallVector<mlir::Value> backwardCells(const PoolWindow &window,
                                               llvm::ArrayRef<Affine> indices,
                                               llvm::ArrayRef<int64_t> output,
                                               mlir::ValueRange inits, CellBody body);
  llvm::SmallVector<mlir::Value>
  overGrid(llvm::ArrayRef<int64_t> extents, unsigned depth, mlir::ValueRange inits,
           llvm::function_ref<llvm::SmallVector<mlir::Value>(llvm::ArrayRef<Affine>,
                                                             mlir::ValueRange, unsigned)>
               body);
  /// Cells that the mean of the window at output `indices` is taken over, in `type`.
  mlir::Value divisor(const PoolWindow &window, llvm::ArrayRef<Affine> indices,
                      llvm::ArrayRef<int64_t> input, bool includePad, mlir::Type type);

  template <typename Fn>
  auto inScope(unsigned parent, mlir::Operation *child, mlir::Block *block, Fn fn);

  llvm::SmallVector<Scope> scopes;
  std::map<Affine, mlir::Value> indexValues;
  std::map<Affine, unsigned> interned;
  llvm::DenseMap<std::pair<mlir::Value, unsigned>, mlir::Value> elements;
  std::map<std::pair<Affine, int64_t>, Affine> clampedIndices;
  std::map<std::pair<mlir::Operation *, Affine>, Affine> gathered;
  std::map<std::pair<RandomStream, Affine>, llvm::SmallVector<mlir::Value>>
      blocks;                       ///< Philox: four words per counter
  std::optional<unsigned> loopBase; ///< of the loop being built last
  unsigned scattered = 0;           ///< accesses so far that are not in steps of 1 along their loop
  bool failed = false;

  void noteAccess(const Affine &index);
  void annotate(mlir::scf::ForOp loop, int64_t extent, bool isRegular);
};

/// Writes the functions of `kernel` in front of it.
llvm::LogicalResult emitKernel(mlir::func::FuncOp kernel);
llvm::LogicalResult emitMapKernel(mlir::func::FuncOp kernel);
llvm::LogicalResult emitRowKernel(mlir::func::FuncOp kernel);
llvm::LogicalResult emitColumnKernel(mlir::func::FuncOp kernel);
llvm::LogicalResult emitScatterKernel(mlir::func::FuncOp kernel);

} // namespace mpc

#endif // MPC_CODEGEN_EMITTER_H

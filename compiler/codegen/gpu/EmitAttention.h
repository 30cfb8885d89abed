//===- EmitAttention.h - tiles of scores, by tensor cores or in registers ---------------===//
//
// All kernels of attention are alike: a block owns rows of one side (queries or keys), `fixed`,
// and goes over the other side tile by tile, `moving`. With pairs of such matrices:
//
//   scores   x[r, c] = Σ_k fixed[r, k] · moving[c, k]
//   sums     y[r, w] = Σ_c weights[r, c] · moving[c, w]
//
//                pair 0           pair 1
//   forward      q, k             -, v         rows are queries
//   queries      q, k             do, v        rows are queries
//   keys         k, q             v, do        rows are keys
//
//===------------------------------------------------------------------------------------===//

#ifndef MPC_CODEGEN_GPU_EMITATTENTION_H
#define MPC_CODEGEN_GPU_EMITATTENTION_H

#include "compiler/codegen/gpu/Attention.h"
#include "compiler/codegen/gpu/TileReader.h"
#include <limits>

namespace mpc::gpu {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Rows of a block, and its threads: four warps of 16 rows.
inline constexpr int64_t kAttentionRows = 64, kAttentionThreads = 128;

/// Columns of q (and k), and of v, whose sums are one block's; so many blocks share the rows.
struct AttentionChunks {
  int64_t depth, width, count;
};
enum class AttentionPass { forward, keys, queries };
AttentionChunks attentionChunks(const Attention &attention, AttentionPass pass);

/// The tiles of tensor cores.
struct AttentionPlan {
  int64_t columns; ///< of a tile of scores
  /// Elements of a row of each pair's moving tile in shared memory: its columns, and what the
  /// chunks cover.
  std::array<int64_t, 2> spans;
  /// Where the fixed rows are while the block goes over the tiles.
  enum Fixed { inRegisters, inSharedMemory, inMemory } fixed;
  int64_t sharedBytes;

  AttentionPlan(const Attention &attention, AttentionPass pass, Mma mma);
  /// Elements between two rows of a tile: 16 bytes of padding spread rows over the banks.
  static int64_t padded(int64_t span) { return span + 8; }
};
/// Shared memory of a block without tensor cores.
int64_t registerTilesBytes(int64_t chunk);

/// Queries or keys of all heads: a matrix [rows, columns] per head.
struct AttentionMatrix {
  mlir::Value pointer;
  int64_t rows, columns;
};
struct AttentionPair {
  AttentionMatrix fixed; ///< null pointer: the pair has no scores
  AttentionMatrix moving;
  int64_t chunk; ///< columns of the sums taken with `moving`; 0: none are
};

class AttentionTiles;

/// What a pass over the tiles works with. The emitter's function has kAttentionThreads threads.
struct AttentionBlock {
  AttentionBlock(GpuEmitter &e, const Attention &attention, AttentionPass pass);

  GpuEmitter &e;
  const Attention &attention;
  AttentionPass pass;
  AttentionChunks chunks;
  int64_t rows, columns; ///< of the scores: all fixed and moving ones
  Affine batch, head, firstRow, chunk;

  /// Of so many columns each.
  int64_t tiles(int64_t of) const { return (columns + of - 1) / of; }
  Affine headIndex() const { return batch * attention.heads + head; }
  int64_t allQueries() const { return attention.batch * attention.heads * attention.queries; }
  /// The element of a matrix with so many rows and columns.
  Affine at(int64_t rows, int64_t columns, const Affine &row, const Affine &column) const;
  /// An element of a [B, H, M] of f32, which is number `plane` of several.
  mlir::Value perQuery(mlir::Value pointer, const Affine &query, int64_t plane = 0);
  /// scale · sum + bias.
  mlir::Value score(mlir::Value sum, const Affine &row, const Affine &column);
  /// Of the places of a tile, in their order; none without dropout. All threads must come here.
  llvm::SmallVector<mlir::Value> kept(const AttentionTiles &tiles, const Affine &tile);
  /// The weight of a place, zero where it is not kept.
  mlir::Value orDropped(llvm::ArrayRef<mlir::Value> kept, size_t place, mlir::Value weight);
  float keptFactor() const;    ///< of what is kept, by dropout; else 1
  RandomStream randomStream(); ///< of dropout
  /// exp(x), or exp(x - y), by one exponential to the base of 2.
  mlir::Value exponential(mlir::Value x, mlir::Value y = {});
  mlir::Value f32(float value);
  mlir::Value multiply(mlir::Value a, mlir::Value b);
  mlir::Value add(mlir::Value a, mlir::Value b);
  mlir::Value subtract(mlir::Value a, mlir::Value b);
  mlir::Value fma(mlir::Value a, mlir::Value b, mlir::Value c);
  mlir::Value compare(mlir::arith::CmpFPredicate how, mlir::Value a, mlir::Value b);
  /// Stores sums where their elements exist.
  void store(mlir::Value pointer, int64_t columns, const Affine &row, const Affine &column,
             mlir::ValueRange values);

private:
  mlir::Value load(mlir::Value pointer, const Affine &index, mlir::Type type = {});
  std::map<std::pair<const void *, Affine>, mlir::Value>
      loaded; ///< statistics, δ, the bias, a random stream
};

/// A thread's part of tiles: some rows, of each the same columns.
class AttentionTiles {
public:
  virtual ~AttentionTiles() = default;

  /// A score of a thread: number `row` of rows, and the column in the tile.
  struct Place {
    unsigned row;
    Affine column;
  };
  llvm::SmallVector<Affine> rows; ///< in the block
  /// As many as a power of two. Each bit of a place's number is a step along rows or columns.
  llvm::SmallVector<Place> places;
  /// So many lanes share a row. Their numbers differ by multiples of the distance.
  int64_t rowLanes, laneDistance = 1;
  int64_t columns; ///< of a tile
  /// Every warp has 16 rows, those of warp w from 16 · w on; its places are the sums of
  /// TensorCores, side by side.
  bool areOfTensorCores = false;
  /// Runs of neighbors among the sums taken with a pair: row is the number of rows.
  struct Run {
    unsigned row;
    Affine column; ///< in the chunk
    int64_t first, count;
  };
  virtual llvm::SmallVector<Run> runs(unsigned pair) = 0;

  // In this order, by all threads: start; a loop over the tiles that carries what start and leave
  // return; in it enter, scores (or open, for a pair without) of pair 0, then of pair 1, sums with
  // either, leave.
  virtual llvm::SmallVector<mlir::Value> start() = 0;
  virtual void enter(const Affine &tile, mlir::ValueRange carried) = 0;
  /// Brings the tile of the pair to where it is multiplied; scores() does.
  virtual void open(unsigned pair) = 0;
  /// Of this thread, as `places` says.
  virtual llvm::SmallVector<mlir::Value> scores(unsigned pair) = 0;
  /// sums + weights · moving, with weights like scores, and sums as runs() says.
  virtual llvm::SmallVector<mlir::Value> addUp(unsigned pair, mlir::ValueRange weights,
                                               mlir::ValueRange sums) = 0;
  virtual llvm::SmallVector<mlir::Value> leave() = 0;
};
std::unique_ptr<AttentionTiles> createTiles(AttentionBlock &block,
                                            llvm::ArrayRef<AttentionPair> pairs, Mma mma);

llvm::LogicalResult emitAttentionForward(mlir::func::FuncOp frame, const Attention &attention,
                                         llvm::ArrayRef<Function> functions, Mma mma);
llvm::LogicalResult emitAttentionGradient(mlir::func::FuncOp frame, const Attention &attention,
                                          llvm::ArrayRef<Function> functions, Mma mma);

} // namespace mpc::gpu

#endif // MPC_CODEGEN_GPU_EMITATTENTION_H

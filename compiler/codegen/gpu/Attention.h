//===- Attention.h - fused attention on a GPU -------------------------------------------===//
//
// softmax(scale · q · kᵀ + bias) · v without the scores in memory. Per head, with m a query, n a
// key:
//
//   s[m, n] = scale · Σ_d q[m, d] · k[n, d] + b[m, n]        in f32
//   l[m]    = log Σ_n exp(s[m, n])
//   o[m, e] = Σ_n exp(s[m, n] - l[m]) · v[n, e]
//
// forward: a block owns 64 queries and goes once over the keys, tile by tile. It keeps the largest
// score so far, μ, and the sums taken with it; where a tile has a larger one they are scaled:
//
//   μ' = max(μ, max_n s[n]),  α = exp(μ - μ')
//   σ' = α · σ + Σ_n exp(s[n] - μ'),  a' = α · a + Σ_n exp(s[n] - μ') · v[n]
//   at the end  o = a / σ,  l = μ + log σ
//
// (M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018; T. Dao and others,
// "FlashAttention", 2022, and "FlashAttention-2", 2023.)
//
// gradient: the weights are computed again from l, and no sum is shared between blocks:
//
//   NAME$delta     δ[m] = Σ_e do[m, e] · o[m, e]             into the scratch
//   NAME$keys      a block owns 64 keys, and goes over the queries:
//                    p = exp(s - l),  ds = scale · p · (Σ_e do[m, e] · v[n, e] - δ)
//                    dv[n] = Σ_m p · do[m],  dk[n] = Σ_m ds · q[m]
//   NAME$queries   a block owns 64 queries, and goes over the keys:  dq[m] = Σ_n ds · k[n]
//
// Where a head is wide, blocks share the columns of the sums, and each computes the scores again.
// Numbers: a score of NaN or +∞ makes l, and with it the row of o and of the gradients, NaN; so
// does a row of -∞ throughout. A score of -∞ beside a finite one has no weight. With tensor cores
// weights and ds are rounded to the operands' type before they are multiplied. Beside a bias no
// finite score is below -100000: a mask may be of -10⁹, and where it leaves nothing of a row, l has
// to hold the logarithm of the number of keys all the same.
//
//===------------------------------------------------------------------------------------===//

#ifndef MPC_CODEGEN_GPU_ATTENTION_H
#define MPC_CODEGEN_GPU_ATTENTION_H

#include "compiler/codegen/gpu/Launch.h"

namespace mpc::gpu {

enum class AttentionKind { forward, gradient };

/// Of a head, D or E.
inline constexpr int64_t kMostAttentionChannels = 256;
/// What a lower score counts as, beside a bias.
inline constexpr float kLeastScore = -100000;

/// What the code depends on. q [B, M, H, D], k [B, N, H, D], v [B, N, H, E], o [B, M, H, E], all of
/// one type, and their gradients; l [B, H, M] in f32.
struct Attention {
  AttentionKind kind;
  int64_t batch, heads, queries, keys, depth, width; ///< B, H, M, N, D, E
  mlir::Type element;                                ///< f32, f16 or bf16
  float scale;
  mlir::RankedTensorType bias = {}; ///< f32; null: none
  /// Of the bias: elements from one index of [B, H, M, N] to the next; 0: the same for all.
  std::array<int64_t, 4> biasStrides = {};

  /// The bias that mpc.broadcast with these dimensions would repeat to [B, H, M, N].
  void setBias(mlir::RankedTensorType type, llvm::ArrayRef<int64_t> dimensions);
};

/// False where no code can be made: D or E above kMostAttentionChannels, or without elements; no
/// keys; another type.
bool supportsAttention(const Attention &attention);

/// GPU functions in the order in which they have to run; none where no result has elements. Names
/// are made from the content: equal names mean equal code. Parameters:
///   forward   q, k, v, [bias,] o, l
///   gradient  do, q, k, v, o, l, [bias,] dq, dk, dv, scratch
llvm::SmallVector<Function, 3> attentionFunctions(const Attention &attention);
int64_t attentionScratchBytes(const Attention &attention);

/// Writes the functions at the builder's place. `tensorCores`: halves are multiplied by tensor
/// cores (sm_80 and later), else everything in f32.
llvm::LogicalResult emitAttention(mlir::OpBuilder &builder, mlir::Location loc,
                                  const Attention &attention, bool tensorCores);

} // namespace mpc::gpu

#endif // MPC_CODEGEN_GPU_ATTENTION_H

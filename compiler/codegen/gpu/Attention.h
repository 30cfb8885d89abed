//===- Attention.h - fused attention on a GPU -------------------------------------------===//
//
// dropout(softmax(scale · q · kᵀ + bias)) · v without the scores in memory. Per head, with m a
// query, n a key:
//
//   s[m, n] = scale · Σ_d q[m, d] · k[n, d] + b[m, n]        in f32
//   l[m]    = log Σ_n exp(s[m, n])
//   o[m, e] = Σ_n r[m, n] · exp(s[m, n] - l[m]) · v[n, e]
//
// where r is 1 without dropout, else c = 1 / (1 - ratio) for what is kept, and 0 for what is not
// (AttentionDropout.cpp).
//
// forward: a block owns 64 queries and goes once over the keys, tile by tile. It keeps the largest
// score so far, μ, and the sums taken with it; where a tile has a larger one they are scaled:
//
//   μ' = max(μ, max_n s[n]),  α = exp(μ - μ')
//   σ' = α · σ + Σ_n exp(s[n] - μ'),  a' = α · a + Σ_{n kept} exp(s[n] - μ') · v[n]
//   at the end  o = c · a / σ,  l = μ + log σ
//
// (M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018; T. Dao and others,
// "FlashAttention", 2022, and "FlashAttention-2", 2023.)
//
// gradient: the weights are computed again from μ and σ, and no sum is shared between blocks:
//
//   NAME$delta     δ[m] = Σ_e do[m, e] · o[m, e]             into the scratch
//   NAME$keys      a block owns 64 keys, and goes over the queries:
//                    p = exp(s - μ - log σ),  dp = r · Σ_e do[m, e] · v[n, e]
//                    ds = scale · p · (dp - δ)
//                    dv[n] = c · Σ_{m kept} p · do[m],  dk[n] = Σ_m ds · q[m]
//   NAME$queries   a block owns 64 queries, and goes over the keys:  dq[m] = Σ_n ds · k[n]
//
// Where a head is wide, blocks share the columns of the sums, and each computes the scores again.
// Numbers: a score of NaN or +∞ makes l, and with it the row of o and of the gradients, NaN; so
// does a row of -∞ throughout. Where attention is safe such rows of o are 0 instead, and that of -∞
// has no gradient: p is 0 there, by μ = 0 and log σ = 0. A score of -∞ beside a finite one has no
// weight. With tensor cores weights and ds are rounded to the operands' type before they are
// multiplied. Scores may be of any size: f32 cannot hold l of a row that a mask of -10⁹ leaves
// nothing of, so μ and log σ are kept apart for the generated gradient. l is for a library, which
// bounds scores from below for that reason, and is that of bounded scores. After a library μ is l
// and log σ is ∞, and the gradient bounds scores likewise.
//
//===------------------------------------------------------------------------------------===//

#ifndef MPC_CODEGEN_GPU_ATTENTION_H
#define MPC_CODEGEN_GPU_ATTENTION_H

#include "compiler/codegen/gpu/Launch.h"

namespace mpc::gpu {

enum class AttentionKind { forward, gradient };

/// Of a head, D or E.
inline constexpr int64_t kMostAttentionChannels = 256;
/// What a lower score counts as for a library, beside a bias.
inline constexpr float kLeastScore = -100000;

/// What the code depends on. q [B, M, H, D], k [B, N, H, D], v [B, N, H, E], o [B, M, H, E], all of
/// one type, and their gradients; l [B, H, M] and the statistics [2, B, H, M], which are μ and log
/// σ, in f32.
struct Attention {
  AttentionKind kind;
  int64_t batch, heads, queries, keys, depth, width; ///< B, H, M, N, D, E
  mlir::Type element;                                ///< f32, f16 or bf16
  float scale;
  mlir::RankedTensorType bias = {}; ///< f32; null: none
  /// Of the bias: elements from one index of [B, H, M, N] to the next; 0: the same for all.
  std::array<int64_t, 4> biasStrides = {};
  std::optional<double> dropoutRatio = std::nullopt; ///< of the weights, as mpc.dropout
  bool isSafe = false; ///< rows of NaN, ∞ or -∞ alone are 0: as PyTorch's safe softmax

  /// The bias that mpc.broadcast with these dimensions would repeat to [B, H, M, N].
  void setBias(mlir::RankedTensorType type, llvm::ArrayRef<int64_t> dimensions);
};

/// False where no code can be made: D or E above kMostAttentionChannels, or without elements; no
/// keys; another type.
bool supportsAttention(const Attention &attention);

/// GPU functions in the order in which they have to run; none where no result has elements. Names
/// are made from the content: equal names mean equal code. Parameters:
///   forward   q, k, v, [bias,] [state, stream,] o, l, statistics
///   gradient  do, q, k, v, o, l, statistics, [bias,] [state, stream,] dq, dk, dv, scratch
/// Of the forward pass NAME$statistics runs behind a library.
llvm::SmallVector<Function, 3> attentionFunctions(const Attention &attention);
int64_t attentionScratchBytes(const Attention &attention);

/// Writes the functions at the builder's place. Halves are multiplied by what the architecture
/// has tensor cores for (Architecture.h), the rest in f32.
llvm::LogicalResult emitAttention(mlir::OpBuilder &builder, mlir::Location loc,
                                  const Attention &attention, unsigned architecture);

} // namespace mpc::gpu

#endif // MPC_CODEGEN_GPU_ATTENTION_H

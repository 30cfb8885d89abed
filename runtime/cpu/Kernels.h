//===- Kernels.h - inner loops, compiled once per instruction set ----------------===//
//
// Conversions between float types and the register tile of a matrix product. Each set is a
// file of its own (KernelsAvx512.cpp, KernelsAvx2.cpp, KernelsBase.cpp, all from
// KernelBodies.inc), built with that set's compiler flags; the best one that the CPU has is
// taken at run time. Nothing else is compiled with such flags, so nothing needs them.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CPU_KERNELS_H
#define MPC_RUNTIME_CPU_KERNELS_H

#include <cstddef>
#include <cstdint>

namespace mpc::cpu {

/// Depth of a packed panel: a row panel has this many elements of every row, and some more so that
/// rows do not share cache sets.
constexpr int64_t kPanelDepth = 256;
constexpr int64_t kRowPanelStride = kPanelDepth + 16;

/// c[i, j] (+)= Σ_p a(i, p)·b[p, j] for p < depth. b is a column panel [depth][columns]; a is a row
/// panel (rows of kRowPanelStride elements) or a column panel [depth][rows]. `accumulate` false: c
/// is overwritten.
template <typename C>
using TileFunction = void (*)(int64_t depth, const C *a, const C *b, C *c, int64_t c_stride,
                              bool accumulate);

constexpr int kMaxTileRows = 12;

template <typename C> struct TileKernels {
  int rows, columns;                           ///< of the full register tile
  TileFunction<C> from_rows[kMaxTileRows + 1]; ///< by number of rows that are wanted, 1 … rows
  TileFunction<C>
      from_columns[kMaxTileRows + 1]; ///< the panel's width is `rows` whatever is wanted
};

/// out[c] = Σ_t rows[t][c]·weights[t][c]: one pixel of a depthwise convolution.
template <typename C>
using DepthwiseFunction = void (*)(int64_t taps, const void *const *rows, const C *const *weights,
                                   C *out, int64_t channels);
/// sums[c] += Σ_i x[i · x_stride + c]·y[i · y_stride + c], strides in elements: a line's share of a
/// depthwise filter gradient.
template <typename C>
using DepthwiseSumFunction = void (*)(int64_t count, const void *x, int64_t x_stride, const void *y,
                                      int64_t y_stride, C *sums, int64_t channels);

struct Kernels {
  const char *name;
  // Halves are their bit patterns. To half: round to nearest, ties to even; NaN stays NaN, overflow
  // becomes infinity.
  void (*f16_to_f32)(const void *from, float *to, int64_t count);
  void (*bf16_to_f32)(const void *from, float *to, int64_t count);
  void (*f32_to_f16)(const float *from, void *to, int64_t count);
  void (*f32_to_bf16)(const float *from, void *to, int64_t count);
  TileKernels<float> tile_f32;
  TileKernels<double> tile_f64;
  DepthwiseFunction<float> depthwise_f32, depthwise_bf16, depthwise_f16; ///< by type of the rows
  DepthwiseFunction<double> depthwise_f64;
  DepthwiseSumFunction<float> depthwise_sum_f32, depthwise_sum_bf16, depthwise_sum_f16;
  DepthwiseSumFunction<double> depthwise_sum_f64;
};

extern const Kernels kKernelsAvx512, kKernelsAvx2, kKernelsBase;

/// The best set for this CPU; ONEDNN_MAX_CPU_ISA limits it as it limits oneDNN.
const Kernels &kernels();

} // namespace mpc::cpu

#endif // MPC_RUNTIME_CPU_KERNELS_H

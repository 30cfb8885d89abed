//===- KernelsAvx512.cpp - inner loops for AVX-512 F, BW, DQ, VL ------------------===//
//
// 12 × 2 vectors: 24 of the 32 registers are sums, and two vectors of columns divide the
// usual widths (64, 128 … for f32) without a rest.
//
//===----------------------------------------------------------------------------===//

#define MPC_VECTOR_BYTES 64
#define MPC_TILE_ROWS 12
#define MPC_TILE_VECTORS 2
#define MPC_HAS_F16C
#define MPC_KERNELS kKernelsAvx512
#define MPC_KERNELS_NAME "AVX-512"
#include "runtime/cpu/KernelBodies.inc"

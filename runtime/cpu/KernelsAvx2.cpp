//===- KernelsAvx2.cpp - inner loops for AVX2, FMA, F16C --------------------------===//
//
// 6 × 2 vectors: 12 of the 16 registers are sums.
//
//===----------------------------------------------------------------------------===//

#define MPC_VECTOR_BYTES 32
#define MPC_TILE_ROWS 6
#define MPC_TILE_VECTORS 2
#define MPC_HAS_F16C
#define MPC_KERNELS kKernelsAvx2
#define MPC_KERNELS_NAME "AVX2"
#include "runtime/cpu/KernelBodies.inc"

//===- KernelsBase.cpp - inner loops for any CPU that the compiler targets --------===//

#define MPC_VECTOR_BYTES 16
#define MPC_TILE_ROWS 6
#define MPC_TILE_VECTORS 2
#define MPC_KERNELS kKernelsBase
#define MPC_KERNELS_NAME "baseline"
#include "runtime/cpu/KernelBodies.inc"

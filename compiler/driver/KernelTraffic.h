//===- KernelTraffic.h - bytes that the kernels of an entry point move, and must ----------===//

#ifndef MPC_DRIVER_KERNELTRAFFIC_H
#define MPC_DRIVER_KERNELTRAFFIC_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpc::gpu {
class GroupIndex;
} // namespace mpc::gpu

namespace mpc {

struct KernelTraffic {
  int64_t kernels = 0;      ///< fused clusters: one kernel each
  int64_t gpuFunctions = 0; ///< that a GPU launches for them
  int64_t libraryCalls = 0; ///< products and convolutions
  int64_t moved = 0;        ///< bytes that the kernels read and write
  /// Bytes that no other choice of kernels could save:
  ///   a value that a kernel computes for a product, for the caller, or for a kernel that waits for
  ///   a product in between: written once;
  ///   a value from outside of the kernels, or such a one: what its dearest chain of readers reads
  ///   of it, each of which waits for the one before (the sums over a batch, then what is
  ///   normalized by them);
  ///   any other value between two kernels: nothing, one kernel could hold it.
  int64_t necessary = 0;
};

/// Of a planned entry point; `groups` are the module's.
KernelTraffic kernelTraffic(mlir::func::FuncOp entry, const gpu::GroupIndex &groups);

} // namespace mpc

#endif // MPC_DRIVER_KERNELTRAFFIC_H

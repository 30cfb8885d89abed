//===- KernelConstruction.h - state of one cluster's kernel while it is built -------------===//
//
// KernelDomain.cpp chooses the dimensions that the kernel loops over, KernelBuilder.cpp makes its
// operations in them.
//
//===------------------------------------------------------------------------------===//

#ifndef MPC_PASSES_KERNELCONSTRUCTION_H
#define MPC_PASSES_KERNELCONSTRUCTION_H

#include "passes/KernelBuilder.h"
#include <map>

namespace mpc {

class KernelBuilder {
public:
  KernelBuilder(const Clustering &clustering, int cluster)
      : clustering(clustering), cluster(clustering.clusters[cluster]), id(cluster),
        b(clustering.nodes[this->cluster.members.front()].op->getContext()) {}
  BuiltKernel run(llvm::function_ref<int(mlir::Value)> argumentOf);

private:
  const Clustering &clustering;
  const Clustering::Cluster &cluster;
  int id;
  mlir::OpBuilder b;
  BuiltKernel built;
  mlir::Block *body = nullptr;
  Shape domain, sub; ///< the kernel's domain and the shape of its rows or columns
  int64_t split = 0;
  llvm::DenseMap<mlir::Value, Cuts> cuts;
  std::map<std::pair<void *, std::vector<int64_t>>, mlir::Value> made;

  bool isInside(mlir::Value v) const;
  /// Dimensions whose index an operation changes on its own.
  static llvm::SmallVector<int64_t> changedDimensions(mlir::Operation *op);
  const Cuts &cutsOf(mlir::Value v);
  Cuts computeCuts(mlir::Value v);
  void carryCuts(Cuts &into, mlir::Value operand, mlir::Value result,
                 llvm::function_ref<int64_t(int64_t, int64_t)> resultDimension);
  void chooseDomain();
  bool fixDomain();

  mlir::Value build(mlir::Value v, mlir::ArrayRef<int64_t> shape);
  mlir::Value construct(mlir::Value v, mlir::ArrayRef<int64_t> shape);
  mlir::Value verbatim(mlir::Value v);
  mlir::Value regroup(BroadcastOp op, mlir::ArrayRef<int64_t> shape);
  mlir::Value regroup(TransposeOp op, mlir::ArrayRef<int64_t> shape);
  mlir::Value regroup(SliceOp op, mlir::ArrayRef<int64_t> shape);
  mlir::Value regroup(PadOp op, mlir::ArrayRef<int64_t> shape);
  mlir::Value regroup(ConcatOp op, mlir::ArrayRef<int64_t> shape);
  mlir::Value regroup(IotaOp op, mlir::ArrayRef<int64_t> shape);
  mlir::Value regroup(GatherOp op, mlir::ArrayRef<int64_t> shape);
  mlir::Value reshaped(mlir::Value v, mlir::ArrayRef<int64_t> shape);
  mlir::RankedTensorType typed(mlir::Value like, mlir::ArrayRef<int64_t> shape) {
    return mlir::cast<mlir::RankedTensorType>(like.getType()).clone(shape);
  }
  llvm::SmallVector<int64_t> aliases(llvm::function_ref<int(mlir::Value)> argumentOf);
};

} // namespace mpc

#endif // MPC_PASSES_KERNELCONSTRUCTION_H

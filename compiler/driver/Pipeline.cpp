//===- Pipeline.cpp - the order of the passes -------------------------------------------===//

#include "Pipeline.h"
#include "compiler/ops/OnnxConversion.h"
#include "mlir/Transforms/Passes.h"
#include "passes/Passes.h"

using namespace mlir;
using namespace mpc;

namespace {

void cleanUp(OpPassManager &manager) {
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
}

} // namespace

void mpc::buildPipeline(OpPassManager &manager, const CompileOptions &o) {
  if (o.stage == Stage::onnx)
    return;
  manager.addPass(createConvertOnnxToMpc());
  cleanUp(manager);
  if (o.stage == Stage::core)
    return;
  manager.addPass(createRaisePatterns());
  manager.addPass(createPrepareTraining());
  AttachLossOptions loss;
  loss.loss = o.loss;
  loss.lossInput = o.lossInput;
  if (o.classAxis)
    loss.classAxis = *o.classAxis;
  loss.ignoreIndex = o.ignoreIndex;
  manager.addPass(createAttachLoss(loss));
  cleanUp(manager);
  if (o.stage == Stage::loss)
    return;
  AssignPrecisionOptions precision;
  precision.precision = o.precision;
  precision.keepFp32.assign(o.keepFp32.begin(), o.keepFp32.end());
  precision.allowHalf.assign(o.allowHalf.begin(), o.allowHalf.end());
  for (const std::string &report : o.reports)
    precision.report |= report == "precision" || report == "all";
  manager.addPass(createAssignPrecision(precision));
  cleanUp(manager);
  if (o.stage == Stage::precision)
    return;
  if (o.target == "cuda") {
    manager.addPass(createRaiseAttention());
    cleanUp(manager);
  }
  manager.addPass(createAutodiff());
  cleanUp(manager);
  if (o.stage == Stage::grad)
    return;
  manager.addPass(createInsertLossScaling({o.resolvedLossScale()}));
  manager.addPass(createInsertOptimizer({o.optimizer}));
  cleanUp(manager);
  if (o.stage == Stage::train)
    return;
  manager.addPass(createAssignLayout());
  cleanUp(manager);
  manager.addPass(createExpandComposites());
  cleanUp(manager);
  if (o.target == "cuda") {
    manager.addPass(createPrepareGroups());
    cleanUp(manager);
  }
  manager.addPass(createFuseMultiplyAdd());
  manager.addPass(createPlaceRoundings()); // cleans up itself: fuse has to see what it has seen
  manager.addPass(createFuse());
  manager.addPass(createPlan({o.target}));
}

bool mpc::isSupportedOperator(llvm::StringRef domain, llvm::StringRef op, int64_t sinceVersion) {
  std::string name = domain.empty() || domain == "ai.onnx" ? op.str() : (domain + ":" + op).str();
  return OnnxRegistry::get().find(name, sinceVersion) != nullptr;
}

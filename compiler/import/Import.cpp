//===- Import.cpp - an ONNX file becomes a module of the onnx dialect -----===//

#include "compiler/import/Import.h"
#include "OnnxDialect.h"
#include "compiler/import/Model.h"
#include "compiler/ops/Unsupported.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"

using namespace mlir;
using namespace mpc;
using namespace mpc::import;

namespace {

OwningOpRef<ModuleOp> runStages(StringRef path, const ImportOptions &options, WeightStore &weights,
                                MLIRContext &context, Problems &problems) {
  OnnxModel model;
  if (!loadModel(path, weights, model, problems) || !inlineLocalFunctions(model, problems))
    return {};
  // Both of these are wrong usage of options: told together.
  BatchAxes batch;
  Roles roles;
  bool bound = bindDimensions(model, options, batch, problems);
  if (!bound) {
    Problems others;
    assignRoles(model, options, weights, roles, others);
    problems.list.insert(problems.list.end(), others.list.begin(), others.list.end());
    return {};
  }
  inlineConstantConditions(model);
  // Roles first: an operator's body does not tell its weights from constants.
  if (!checkAttributes(model, problems) || !inferShapes(model, problems) ||
      !checkTypes(model, problems) || !assignRoles(model, options, weights, roles, problems) ||
      !expandFunctionBodies(model, options, problems))
    return {};
  Overrides overrides;
  findOverrides(model, roles, options, overrides, problems);
  return emitModule(model, roles, batch, overrides, options.lossInput, weights, context, problems);
}

} // namespace

OwningOpRef<ModuleOp> mpc::importOnnx(StringRef path, const ImportOptions &options,
                                      WeightStore &weights, MLIRContext &context) {
  context.loadDialect<func::FuncDialect, arith::ArithDialect, MpcDialect, mpc::onnx::OnnxDialect>();
  Problems problems;
  OwningOpRef<ModuleOp> module;
  try {
    module = runStages(path, options, weights, context, problems);
  } catch (const std::exception &problem) { // the ONNX library throws where a model is damaged in
                                            // ways its checker does not look at
    problems.add("cannot be read: " + Twine(problem.what()));
  }
  for (const Problem &problem : problems.list) {
    Location loc = problem.node.empty() ? Location(UnknownLoc::get(&context))
                                        : NameLoc::get(StringAttr::get(&context, problem.node));
    InFlightDiagnostic error = emitError(loc) << problem.text;
    if (problem.unsupported)
      markUnsupported(error);
  }
  if (!problems.none() || !module || failed(verify(*module)))
    return {};
  return module;
}

//===- PrepareTraining.cpp - a training-mode and an inference-mode function ----===//
//
// Exporters write a model in inference mode more often than not: normalization by the
// running statistics, dropout gone or off. Training needs both forms, so the graph is
// cloned: @forward normalizes by the statistics of the batch and drops, @predict does
// neither. The running statistics are updated in a working copy, which @apply commits
// or drops together with the step:
//
//   working' = momentum · working + (1 - momentum) · batch        (ONNX: biased variance)
//
//===----------------------------------------------------------------------------===//

#include "FunctionArguments.h"
#include "Passes.h"
#include "compiler/ops/BatchAnalysis.h"
#include "compiler/ops/Build.h"
#include "compiler/ops/Statistics.h"
#include "llvm/ADT/MapVector.h"

namespace mpc {
#define GEN_PASS_DEF_PREPARETRAINING
#include "Passes.h.inc"
} // namespace mpc

using namespace mlir;
using namespace mpc;

namespace {
struct PrepareTraining : mpc::impl::PrepareTrainingBase<PrepareTraining> {
  void runOnOperation() override;

private:
  void disarm(func::FuncOp predict);
  void rearm(func::FuncOp forward, BatchAnalysis &analysis, Value samples);
  Value presentRows(OpBuilder &b, BatchNormInferenceOp norm, const BatchAnalysis &analysis,
                    Value samples);
  void describeOutputs(func::FuncOp predict);
};
} // namespace

// The importer has decided what --freeze names.
static bool isFrozen(func::FuncOp f, Value v) {
  BlockArgument argument = argumentBehind(v);
  return argument && f.getArgAttr(argument.getArgNumber(), "mpc.frozen");
}

// Inference mode: dropout is the identity and keeps everything.
void PrepareTraining::disarm(func::FuncOp predict) {
  predict.walk([](DropoutOp dropout) {
    dropout.getResult().replaceAllUsesWith(dropout.getInput());
    dropout.erase();
  });
  // The mask output of a Dropout compares a random number with the ratio: 1 keeps every element.
  predict.walk([](RandomUniformOp random) {
    OpBuilder b(random);
    auto type = cast<RankedTensorType>(random.getType());
    random.getResult().replaceAllUsesWith(splat(b, random.getLoc(), type, 1.0));
    random.erase();
  });
  eraseDeadOperations(predict);
  removeUnusedArguments(predict);
}

// How many rows of axis 0 count: all that belong to the samples that are there, as a number of rows
// each. Where the rows are not the samples', all count, and a smaller last batch would be
// normalized by its filling too.
Value PrepareTraining::presentRows(OpBuilder &b, BatchNormInferenceOp norm,
                                   const BatchAnalysis &analysis, Value samples) {
  Location loc = norm.getLoc();
  SamplePlaces places = analysis.of(norm.getInput());
  const SamplePlace *rows = places.on(0);
  int64_t all = shapeOf(norm.getInput())[0];
  if (rows && places.places.size() == 1 && rows->outer == 1)
    return rows->inner == 1
               ? samples
               : mul(b, loc, samples,
                     scalarTensor(b, loc, b.getI64Type(), static_cast<double>(rows->inner)));
  if (!places.none())
    refuseSmallerBatch(getOperation(),
                       ("node '" + nodeOf(norm) +
                        "' (BatchNormalization) normalizes rows that are not the samples")
                           .str());
  return scalarTensor(b, loc, b.getI64Type(), static_cast<double>(all));
}

// Training mode: statistics of the batch, and new running statistics as tied results.
void PrepareTraining::rearm(func::FuncOp forward, BatchAnalysis &analysis, Value samples) {
  NodeAttributeListener listener;
  OpBuilder b(&getContext(), &listener);
  llvm::MapVector<Value, Value>
      updated; // statistic argument → its value after all nodes that share it
  SmallVector<std::pair<Operation *, Value>> newStatistics;
  SmallVector<Operation *> readers; // of statistics, in the order in which they move
  forward.walk([&](Operation *op) {
    if (isa<BatchNormInferenceOp>(op) || isNewStatistic(op))
      readers.push_back(op);
  });
  int64_t rearmed = 0, kept = 0, fromInference = 0;
  for (Operation *reader : readers) {
    auto norm = dyn_cast<BatchNormInferenceOp>(reader);
    if (!norm) {
      if (Value working = updated.lookup(reader->getOperand(0)))
        newStatistics.push_back({reader, working});
      continue;
    }
    Value mean = statisticBehind(norm.getMean()), variance = statisticBehind(norm.getVariance());
    auto isStatistic = [&](Value v) {
      auto argument = dyn_cast<BlockArgument>(v);
      return argument && argumentRole(forward, argument.getArgNumber()) == "statistic";
    };
    bool frozen = llvm::any_of(ArrayRef<Value>{norm.getScale(), norm.getBias(), mean, variance},
                               [&](Value v) { return isFrozen(forward, v); });
    if (frozen || !isStatistic(mean) || !isStatistic(variance)) {
      ++kept;
      continue;
    }
    ++rearmed;
    fromInference += !norm.getTraining();
    b.setInsertionPoint(norm);
    listener.setOrigin(norm);
    Location loc = norm.getLoc();
    Value present = presentRows(b, norm, analysis, samples);
    auto trained =
        BatchNormOp::create(b, loc, TypeRange{norm.getType(), mean.getType(), variance.getType()},
                            ValueRange{norm.getInput(), norm.getScale(), norm.getBias(), present});
    trained.setEpsilonAttr(norm.getEpsilonAttr());
    trained.setChannelsLast(norm.getChannelsLast());
    analysis.visit(trained); // the next norm may read it
    norm.getResult().replaceAllUsesWith(trained.getResult());
    // working' = momentum · working + (1 - momentum) · batch
    double momentum = norm.getMomentum().convertToDouble();
    auto update = [&](Value statistic, Value batch) {
      Value &working = updated.insert({statistic, statistic}).first->second;
      Value old = mul(b, loc, working, splat(b, loc, working.getType(), momentum));
      working = add(b, loc, old, mul(b, loc, batch, splat(b, loc, batch.getType(), 1 - momentum)));
    };
    update(mean, trained.getMean());
    update(variance, trained.getVariance());
    norm.erase();
  }
  for (auto [mark, value] : newStatistics)
    mark->setOperand(0, value);

  // The argument becomes the working copy; a frozen node that shares it keeps an argument of the
  // old role.
  for (auto [statistic, working] : updated) {
    unsigned i = cast<BlockArgument>(statistic).getArgNumber();
    StringRef name = argumentName(forward, i);
    bool shared = llvm::any_of(statistic.getUsers(),
                               [](Operation *user) { return isa<BatchNormInferenceOp>(user); });
    if (shared) {
      Value other = addArgument(forward, "statistic", name, statistic.getType(),
                                forward.getArgAttr(i, MpcDialect::kWeightsAttr));
      statistic.replaceUsesWithIf(
          other, [](OpOperand &use) { return isa<BatchNormInferenceOp>(use.getOwner()); });
    }
    setArgumentRole(forward, i, "working_statistic");
    addResult(forward, working, "working_statistic", name, statistic);
  }

  int64_t dropouts = 0;
  forward.walk([&](DropoutOp) { ++dropouts; });
  SmallVector<std::string> facts;
  if (rearmed)
    facts.push_back(std::to_string(rearmed) + " BatchNormalization by the batch's statistics" +
                    (fromInference
                         ? " (" + std::to_string(fromInference) + " exported in inference mode)"
                         : ""));
  if (kept)
    facts.push_back(std::to_string(kept) + " BatchNormalization frozen, by its running statistics");
  if (dropouts)
    facts.push_back(std::to_string(dropouts) + " Dropout active");
  if (!facts.empty())
    addNote(getOperation(), "training mode: " + llvm::join(facts, ", "));
}

// Where the samples are in each output, for whoever puts the batches' outputs together:
// mpc.output_samples has name → [axis, blocks]; [-1, 1] for an output that belongs to no single
// sample, [-2, 1] where several axes hold samples. One that mixes samples is left out: with it no
// smaller batch runs.
void PrepareTraining::describeOutputs(func::FuncOp predict) {
  BatchAnalysis analysis(predict);
  if (analysis.batchSize() == 1)
    return;
  Builder b(&getContext());
  NamedAttrList outputs;
  for (auto [i, output] : llvm::enumerate(terminatorOf(predict)->getOperands())) {
    SamplePlaces places = analysis.of(output);
    if (places.mixed() || resultRole(predict, i) != "output")
      continue;
    SmallVector<int64_t> where{kSeveralSampleAxes, 1};
    if (places.none())
      where[0] = kNoSampleAxis;
    else if (places.places.size() == 1)
      where = {places.places[0].axis, places.places[0].outer};
    outputs.set(resultName(predict, i), b.getDenseI64ArrayAttr(where));
  }
  if (!outputs.empty())
    getOperation()->setAttr("mpc.output_samples", outputs.getDictionary(&getContext()));
}

void PrepareTraining::runOnOperation() {
  ModuleOp module = getOperation();
  func::FuncOp forward = findFunction(module, "forward");
  if (!forward)
    return;
  func::FuncOp predict = forward.clone();
  predict.setSymName("predict");
  module.insert(std::next(forward->getIterator()), predict);
  disarm(predict);
  describeOutputs(predict);
  Value samples = getOrAddArgument(forward, "samples", "samples",
                                   RankedTensorType::get({}, IntegerType::get(&getContext(), 64)));
  BatchAnalysis analysis(forward);
  for (Value output : terminatorOf(forward)->getOperands())
    refuseSmallerBatch(getOperation(), analysis.whyMixed(output));
  rearm(forward, analysis, samples);
}

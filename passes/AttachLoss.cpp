//===- AttachLoss.cpp - the loss on @forward, the evaluation on @predict -------===//
//
// Losses have PyTorch's definitions with mean reduction, over the elements that count:
// those of the samples that are there, and for class labels those that are not
// `ignore_index`. Besides the mean a loss gives the number of elements it is a mean
// of, by which micro-batches and evaluation batches are weighted.
//
// The importer gives a tensor that --loss-input names, but that is no graph output, as one more
// result of role "loss_input"; @predict loses it here.
//
//   @forward(…)             → outputs               @forward(…, labels) → loss, count
//   @predict(…)             → outputs               @predict(…)         → outputs
//                                                   @eval_step(…, labels, samples) → loss, count,
//                                                   correct
//
//===----------------------------------------------------------------------------===//

#include "FunctionArguments.h"
#include "Losses.h"
#include "Passes.h"
#include "compiler/ops/BatchAnalysis.h"
#include "compiler/ops/Build.h"

namespace mpc {
#define GEN_PASS_DEF_ATTACHLOSS
#include "Passes.h.inc"
} // namespace mpc

using namespace mlir;
using namespace mpc;

namespace {
struct AttachLoss : mpc::impl::AttachLossBase<AttachLoss> {
  using AttachLossBase::AttachLossBase;
  void runOnOperation() override;

private:
  LogicalResult chooseOutput(func::FuncOp f, unsigned &index);
  LogicalResult chooseClassAxis(func::FuncOp f, RankedTensorType output, StringRef name,
                                int64_t &axis);
  LogicalResult checkOutput(func::FuncOp f, RankedTensorType output, StringRef name,
                            int64_t &classes);
  LogicalResult placeSamples(func::FuncOp f, StringRef name, int64_t classes, LossBuilder &builder);
  void noteMisuse(Value output, StringRef name, int64_t classes);
  LossResult makeLoss(func::FuncOp f, int64_t classes, LossBuilder &builder);
  LogicalResult attach(func::FuncOp f, bool evaluate);
  bool ofClasses() const { return loss == "cross-entropy" || loss == "nll"; }
};

/// Marks what the builder inserts as part of the loss: precision class F, and a name for messages.
struct LossListener : NodeAttributeListener {
  explicit LossListener(MLIRContext *context) {
    node = StringAttr::get(context, "loss");
    op = StringAttr::get(context, "Loss");
  }
};
} // namespace

// The output or tensor by name, or the first floating-point output.
LogicalResult AttachLoss::chooseOutput(func::FuncOp f, unsigned &index) {
  std::string known;
  for (unsigned i = 0; i < f.getNumResults(); ++i) {
    bool isOutput = resultRole(f, i) == "output";
    if (!isOutput && resultRole(f, i) != "loss_input")
      continue;
    auto type = dyn_cast<RankedTensorType>(f.getResultTypes()[i]);
    bool isFloat = type && isa<FloatType>(type.getElementType());
    StringRef name = resultName(f, i);
    if (lossInput.empty() ? isFloat : name == lossInput) {
      if (!isFloat)
        return emitError(f.getLoc())
               << "--loss-input=" << lossInput << ": it is not floating-point, no loss can read it";
      index = i;
      return success();
    }
    if (isFloat && isOutput)
      known += (known.empty() ? "" : ", ") + name.str();
  }
  if (lossInput.empty())
    return emitError(f.getLoc()) << "the model has no floating-point output that a loss could "
                                    "read; use --loss=none for inference only";
  return emitError(f.getLoc()) << "--loss-input=" << lossInput
                               << ": the model has no output or tensor of that name; "
                                  "floating-point outputs: "
                               << known;
}

// 1 as in PyTorch; the last for outputs of rank 3.
LogicalResult AttachLoss::chooseClassAxis(func::FuncOp f, RankedTensorType output, StringRef name,
                                          int64_t &axis) {
  int64_t rank = output.getRank();
  if (rank < 2)
    return emitError(f.getLoc()) << "--loss=" << loss
                                 << " needs an output of shape samples × classes, but '" << name
                                 << "' is " << output
                                 << "; choose another with --loss-input, or another loss";
  axis = classAxis != -1000 ? int64_t(classAxis) : rank == 3 ? 2 : 1;
  if (axis < 0)
    axis += rank;
  if (axis < 1 || axis >= rank)
    return emitError(f.getLoc()) << "--class-axis=" << int64_t(classAxis) << ": output '" << name
                                 << "' is " << output << ", so the axis is 1 to " << rank - 1
                                 << " (or negative from the end)";
  return success();
}

/// The loss can read the output; `classes` is the axis of its classes.
LogicalResult AttachLoss::checkOutput(func::FuncOp f, RankedTensorType output, StringRef name,
                                      int64_t &classes) {
  if (hasNoElements(output))
    return emitError(f.getLoc()) << "--loss=" << loss << ": output '" << name << "' is " << output
                                 << ", which has no elements";
  if (ofClasses())
    return chooseClassAxis(f, output, name, classes);
  if (loss == "output" && output.getNumElements() != 1)
    return emitError(f.getLoc()) << "--loss=output: output '" << name << "' is " << output
                                 << ", a loss has one element";
  if (output.getRank() == 0 && loss != "output")
    return emitError(f.getLoc()) << "--loss=" << loss
                                 << " needs an output with an axis of samples, but '" << name
                                 << "' is one number; use --loss=output if that is the loss itself";
  return success();
}

/// Tells the builder which elements are those of samples that are there; where that cannot be told,
/// the module says why no smaller batch can be trained.
LogicalResult AttachLoss::placeSamples(func::FuncOp f, StringRef name, int64_t classes,
                                       LossBuilder &builder) {
  BatchAnalysis analysis(f);
  auto type = cast<RankedTensorType>(builder.output.getType());
  SamplePlaces places = analysis.of(builder.output);
  const SamplePlace *place = places.places.size() == 1 ? &places.places.front() : nullptr;
  std::string why = analysis.whyMixed(builder.output);
  if (place && place->outer == 1) {
    builder.axis = place->axis;
    builder.factor = place->inner;
  } else if (analysis.batchSize() == 1 && type.getRank()) { // no smaller batch: every row counts
    builder.factor = type.getDimSize(0);
  } else {
    builder.axis = -1;
    if (why.empty() && loss != "output") // a loss is exact if it is none of the samples'
      why = ("output '" + name + "', which the loss reads, holds the samples along no single axis")
                .str();
  }
  if (ofClasses() && place && place->axis == classes)
    return emitError(f.getLoc()) << "--class-axis: axis " << classes << " of output '" << name
                                 << "' is that of the samples, not of classes";
  refuseSmallerBatch(getOperation(), why);
  return success();
}

/// The operation that computes the output; what only changes its type is passed over.
static Operation *makerOf(Value output) {
  Operation *maker = output.getDefiningOp();
  while (isa_and_nonnull<arith::ExtFOp, arith::TruncFOp>(maker))
    maker = maker->getOperand(0).getDefiningOp();
  return maker;
}

/// Losses that can be trained, as in PyTorch, but hardly ever are what was meant: a note says so.
void AttachLoss::noteMisuse(Value output, StringRef name, int64_t classes) {
  std::string what = "--loss=" + loss + ": output '" + name.str() + "' ";
  Operation *maker = makerOf(output);
  auto softmax = dyn_cast_if_present<SoftmaxOp>(maker);
  bool isSoftmax = softmax && int64_t(softmax.getAxis()) == classes;
  if (ofClasses() && shapeOf(output)[classes] == 1)
    addNote(getOperation(), what + "has one class, so that " +
                                (loss == "nll" ? "no label but 0 exists"
                                               : "the loss is 0 whatever the model computes") +
                                "; for one logit per sample there is --loss=bce-with-logits");
  if (loss == "cross-entropy" && isSoftmax)
    addNote(getOperation(), what + "is a Softmax already, and the loss computes another of it; "
                                   "give the tensor before it with --loss-input");
  if (loss == "nll" && isSoftmax)
    addNote(getOperation(), what + "is a Softmax, and the loss reads logarithms of probabilities; "
                                   "give the tensor before it with --loss-input, and "
                                   "--loss=cross-entropy");
  if (loss == "bce-with-logits" && isa_and_nonnull<SigmoidOp>(maker))
    addNote(getOperation(), what + "is a Sigmoid already, and the loss computes another of it; "
                                   "use --loss=bce, or give the tensor before it with "
                                   "--loss-input");
}

/// The loss, with its labels as an argument of the function.
LossResult AttachLoss::makeLoss(func::FuncOp f, int64_t classes, LossBuilder &builder) {
  auto type = cast<RankedTensorType>(builder.output.getType());
  if (loss == "output")
    return builder.outputLoss();
  if (!ofClasses())
    return builder.elementwiseLoss(loss, addArgument(f, "labels", "labels", type));
  SmallVector<int64_t> shape(type.getShape());
  shape.erase(shape.begin() + classes);
  auto labels = RankedTensorType::get(shape, builder.b.getI64Type());
  return builder.classLoss(addArgument(f, "labels", "labels", labels), classes, ignoreIndex,
                           loss == "nll");
}

/// Outputs go; loss and count come first, before the working statistics, and `correct`, which may
/// be null, last.
static void replaceOutputs(func::FuncOp f, const LossResult &made, Value correct) {
  SmallVector<std::tuple<Value, std::string, std::string, Value>> rest;
  for (unsigned i = 0; i < f.getNumResults(); ++i)
    if (resultRole(f, i) != "output" && resultRole(f, i) != "loss_input") {
      auto tied = tiedArgument(f, i);
      rest.push_back({terminatorOf(f)->getOperand(i), resultRole(f, i).str(),
                      resultName(f, i).str(), tied ? Value(f.getArgument(*tied)) : Value()});
    }
  removeResults(f, [](unsigned) { return true; });
  addResult(f, made.loss, "loss", "loss");
  addResult(f, made.count, "count", "count");
  for (auto &[value, role, resultName, tied] : rest)
    addResult(f, value, role, resultName, tied);
  if (correct)
    addResult(f, correct, "correct", "correct");
  eraseDeadOperations(f);
}

LogicalResult AttachLoss::attach(func::FuncOp f, bool evaluate) {
  unsigned index = 0;
  if (failed(chooseOutput(f, index)))
    return failure();
  Value output = terminatorOf(f)->getOperand(index);
  auto type = cast<RankedTensorType>(output.getType());
  std::string name = resultName(f, index).str();
  int64_t classes = 1;
  if (failed(checkOutput(f, type, name, classes)))
    return failure();

  LossListener listener(&getContext());
  OpBuilder b(terminatorOf(f));
  b.setListener(&listener);
  Location loc = NameLoc::get(b.getStringAttr("loss"));
  Value samples =
      getOrAddArgument(f, "samples", "samples", RankedTensorType::get({}, b.getI64Type()));
  LossBuilder builder{b, loc, output, samples};
  if (failed(placeSamples(f, name, classes, builder)))
    return failure();
  if (!evaluate)
    noteMisuse(output, name, classes);
  LossResult made = makeLoss(f, classes, builder);
  Value correct;
  if (evaluate)
    correct = ofClasses() ? builder.correct(findArgument(f, "labels"), classes, ignoreIndex)
                          : scalarTensor(b, loc, elementType(made.loss), -1);
  else if (ofClasses())
    getOperation()->setAttr("mpc.classes", b.getI64IntegerAttr(type.getDimSize(classes)));
  // The program's own numbers are f32 also where the model computes in double (--precision=fp64
  // makes everything f64).
  for (Value *number : {&made.loss, &made.count, &correct})
    if (*number)
      *number = castTo(b, loc, *number, b.getF32Type());
  replaceOutputs(f, made, correct);
  return success();
}

void AttachLoss::runOnOperation() {
  ModuleOp module = getOperation();
  func::FuncOp forward = findFunction(module, "forward"), predict = findFunction(module, "predict");
  if (!forward || !predict)
    return;
  OpBuilder b(&getContext());
  static const SmallVector<StringRef> known{
      "cross-entropy", "nll", "mse", "l1", "smooth-l1", "bce", "bce-with-logits", "output", "none"};
  if (!llvm::is_contained(known, StringRef(loss))) {
    emitError(forward.getLoc()) << "--loss=" << loss << ": unknown; one of "
                                << llvm::join(known, ", ");
    return signalPassFailure();
  }
  auto dropLossInput = [&] {
    removeResults(predict, [&](unsigned i) { return resultRole(predict, i) == "loss_input"; });
    eraseDeadOperations(predict);
  };
  module->setAttr("mpc.loss", b.getStringAttr(loss));
  module->setAttr("mpc.ignore_index", b.getI64IntegerAttr(ignoreIndex));
  if (loss == "none") {
    forward.erase();
    return dropLossInput();
  }
  func::FuncOp evaluation = predict.clone();
  evaluation.setSymName("eval_step");
  module.insert(std::next(predict->getIterator()), evaluation);
  dropLossInput();
  if (failed(attach(forward, /*evaluate=*/false)) || failed(attach(evaluation, /*evaluate=*/true)))
    return signalPassFailure();
}

//===- ConvertForFewer.cpp - what a node makes of fewer samples than a whole batch ------===//
//
// Where constants or folding hide from BatchAnalysis what becomes of the samples, the node is
// converted once more, for fewer of them, and the shapes tell. What was built is thrown away.
//
//===----------------------------------------------------------------------------------===//

#include "Build.h"
#include "OnnxConverter.h"

using namespace mlir;

namespace mpc {

/// Operators with sizes or positions, which are the whole batch's where the model gives constants.
static bool takesSizes(onnx::NodeOp node) {
  static constexpr StringLiteral known[] = {"Expand", "Gather", "Pad",   "Reshape",
                                            "Resize", "Slice",  "Split", "SplitToSequence"};
  return llvm::is_contained(known, operatorName(node));
}

/// The value as n samples would have it, for a conversion that is thrown away; null if it holds
/// none.
Value OnnxConverter::ofFewer(Location loc, Value v, int64_t n) {
  Value x = single(v);
  if (!x || analysis.of(x).none())
    return {};
  Type type = tensorType(x).clone(trace.shapeAt(n, shapeOf(x), analysis.of(x)));
  return UnrealizedConversionCastOp::create(b, loc, type, x).getResult(0);
}

static void eraseBehind(Block &block, Operation *last) {
  while (!block.empty() && &block.back() != last)
    block.back().erase();
}

/// Folding makes of x · 0, or of Where(x, 1, 1), what no longer tells where its samples are: a node
/// whose result has none is converted for one sample less. False if the result is another one then.
bool OnnxConverter::placeFolded(onnx::NodeOp node) {
  auto isUnknown = [&](Value result) {
    Value x = single(result);
    return x && analysis.of(x).none() && !hasNoElements(x);
  };
  if (!trace.active() || dependsOnBatch(node) || llvm::none_of(node.getResults(), isUnknown))
    return true;
  Block &block = forward.front();
  Operation *last = block.empty() ? nullptr : &block.back();
  int64_t n = analysis.batchSize() - 1;
  SmallVector<std::pair<Value, Value>> replaced;
  for (Value v : node.getInputs())
    if (Value fewer = ofFewer(node.getLoc(), v, n))
      replaced.push_back({v, fewer});
  if (replaced.empty())
    return true;
  auto results = convertAgain(node, replaced, /*otherShapes=*/true);
  struct Part {
    SmallVector<int64_t> shape;
    DenseElementsAttr constant;
  };
  SmallVector<std::optional<Part>> parts(node.getNumResults());
  for (unsigned i = 0; results && i < parts.size(); ++i)
    if ((*results)[i].size() == 1) {
      Value part = (*results)[i].front();
      parts[i] = {SmallVector<int64_t>(shapeOf(part)), constantOf(part)};
    }
  eraseBehind(block, last);
  for (auto [result, part] : llvm::zip(node.getResults(), parts)) {
    if (!isUnknown(result))
      continue;
    Value made = single(result);
    DenseElementsAttr constant = constantOf(made);
    SmallVector<int64_t> shape(shapeOf(made));
    if (!part || part->shape.size() != shape.size())
      return !constant; // what has been computed is followed
    SmallVector<SamplePlace> places;
    for (auto [axis, size] : llvm::enumerate(shape)) {
      SamplePlace place = rowsOf(made, axis);
      if (part->shape[axis] == size)
        continue;
      if (part->shape[axis] != place.inner * n || !(constant || analysis.goesWith(made, place)))
        return false;
      places.push_back(place);
    }
    if (constant && !(part->constant && isPartOf(part->constant, constant)))
      return false;
    for (const SamplePlace &place : places)
      made = placed(node.getLoc(), made, place);
    values[result] = {made};
  }
  return true;
}

/// Constants mean the same for fewer samples as for N: [4, -1] for x of [4, 12] is a row per sample
/// by chance, and [4, 9] for three. The node is converted for fewer, and must make what the
/// samples' places say; the largest number of them that it takes tells. If it takes no fewer, or
/// the file is for one size of the batch, the model says nothing of them.
bool OnnxConverter::sameForFewer(onnx::NodeOp node) {
  auto holdsSamples = [&](Value v) { return single(v) && !analysis.of(single(v)).none(); };
  if (!takesSizes(node) || !module->hasAttr("mpc.dynamic_batch") ||
      llvm::none_of(node.getInputs(), holdsSamples))
    return true;
  SmallVector<Built> whole;
  for (Value result : node.getResults()) {
    whole.push_back(values.lookup(result));
    if (whole.back().empty() ||
        llvm::any_of(whole.back(), [&](Value v) { return analysis.of(v).mixed(); }))
      return true; // an error, or refused where it matters
  }

  constexpr int64_t kMostTries = 1024; // for a node that takes no fewer, of a very large batch
  Block &block = forward.front();
  Operation *last = block.empty() ? nullptr : &block.back();
  for (int64_t n = analysis.batchSize() - 1, tries = 0; n > 0 && tries < kMostTries; --n, ++tries) {
    const int64_t *size = llvm::find(trace.sizes(), n);
    if (dependsOnBatch(node) && size == trace.sizes().end())
      continue; // not known
    SmallVector<std::pair<Value, Value>> replaced;
    for (Value v : node.getInputs()) {
      if (Value fewer = ofFewer(node.getLoc(), v, n)) {
        replaced.push_back({v, fewer});
      } else if (trace.follows(v)) {
        if (DenseElementsAttr other = trace.constants(v)[size - trace.sizes().begin()])
          replaced.push_back({v, arith::ConstantOp::create(b, node.getLoc(), other)});
      }
    }
    auto results = convertAgain(node, replaced, /*otherShapes=*/true);
    auto fits = [&](Value was, Value now) { // what has no elements will be a constant
      return hasNoElements(was) ||
             ArrayRef(trace.shapeAt(n, shapeOf(was), analysis.of(was))) == shapeOf(now);
    };
    bool same = results && llvm::all_of(llvm::zip(whole, *results), [&](const auto &pair) {
                  const auto &[was, now] = pair;
                  return was.size() == now.size() &&
                         llvm::all_of(llvm::zip(was, now), [&](const auto &values) {
                           return fits(std::get<0>(values), std::get<1>(values));
                         });
                });
    eraseBehind(block, last);
    if (results)
      return same;
  }
  return true;
}

} // namespace mpc

//===- LostDropout.cpp - dropout that an exporter left out -------------------------===//
//
// PyTorch's newer exporter writes the dropout of scaled_dot_product_attention as one for inference,
// also of a model that is exported for training, and its optimizer removes that. The nodes have the
// call as it was:
//
//   call_function[target=torch.ops.aten.scaled_dot_product_attention.default](args = (%q, %k, %v,
//   None, 0.1), kwargs = {})
//
// So whoever trains such a file is told.
//
//===----------------------------------------------------------------------===//

#include "compiler/import/Model.h"
#include "llvm/ADT/StringExtras.h"

using namespace mpc;
using namespace mpc::import;
using llvm::StringRef;

// (query, key, value, attn_mask, dropout_p, ...)
static constexpr unsigned kDropoutPlace = 4;

/// The call's dropout_p, as it is written there; empty: it has the default, none.
static StringRef dropoutOf(StringRef arguments) {
  auto [positional, named] = arguments.split("kwargs = {");
  auto [before, value] = named.split("dropout_p: ");
  if (value.empty()) {
    value = positional;
    for (unsigned i = 0; i < kDropoutPlace; ++i)
      value = value.split(", ").second;
  }
  return value.take_until([](char c) { return c == ',' || c == ')' || c == '}'; });
}

void mpc::import::noteLostDropout(OnnxModel &model) {
  llvm::StringMap<StringRef> lost; // call → its dropout
  std::set<StringRef> kept;
  for (const onnx::NodeProto &node : model.proto.graph().node()) {
    if (!callTarget(node).contains("scaled_dot_product_attention"))
      continue;
    StringRef call = callText(node);
    double ratio = 0;
    StringRef dropout = dropoutOf(call.substr(call.find("(args = (")));
    if (node.op_type() == "Dropout")
      kept.insert(call);
    else if (!dropout.getAsDouble(ratio) && ratio > 0 && ratio < 1)
      lost[call] = dropout;
  }
  for (StringRef call : kept)
    lost.erase(call);
  if (lost.empty())
    return;
  std::set<std::string> ratios;
  for (const auto &entry : lost)
    ratios.insert(entry.second.str());
  model.notes.push_back(
      std::to_string(lost.size()) +
      (lost.size() == 1 ? " call of scaled_dot_product_attention has"
                        : " calls of scaled_dot_product_attention have") +
      " dropout (" + llvm::join(ratios, ", ") +
      "), which the exporter left out of the file: its weights are trained without; exported with "
      "optimize=False it stays");
}

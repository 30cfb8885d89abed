//===- TransposedTies.cpp - a tied matrix that was transposed is tied again --------===//
//
// A language model's embedding is often its output layer too. An exporter that folds constants
// transposes it for the product once and for all, and writes the result down as another matrix:
//
//   Gather(token.weight, …)                 Gather(token.weight, …)
//   MatMul(h, onnx::MatMul_900)       →     onnx::MatMul_900 = Transpose(token.weight)
//                                           MatMul(h, onnx::MatMul_900)
//
// Trained as it stands, the file has two matrices where the model had one. A matrix counts as
// the transpose of another if all its bits say so, and the file says that it was computed of that
// one alone; or, where the file does not tell, its name is one that exporters make for constants
// and the other's is not. A symmetric matrix is its own transpose, and so may be what is computed
// of it, relu(w), or what is only initialized alike: of such the file has to tell, and the name has
// to be a transposition's.
//
//===----------------------------------------------------------------------===//

#include "compiler/import/Model.h"
#include "llvm/Support/Regex.h"

using namespace mpc;
using namespace mpc::import;
using llvm::ArrayRef;
using llvm::StringRef;

using Tensor = onnx::TensorProto;

static bool haveSwappedShapes(const Tensor &a, const Tensor &b) {
  return a.data_type() == b.data_type() && a.dims(0) == b.dims(1) && a.dims(1) == b.dims(0);
}

/// All bits of two tensors of swapped shapes.
static bool isTranspose(const Tensor &a, ArrayRef<char> aBytes, ArrayRef<char> bBytes) {
  int64_t size = elementBytes(a.data_type()), rows = a.dims(0), columns = a.dims(1);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      if (std::memcmp(aBytes.data() + (i * columns + j) * size,
                      bBytes.data() + (j * rows + i) * size, size) != 0)
        return false;
  return true;
}

/// The matrices that nodes of the graph use as weights or tables.
static std::vector<const Tensor *> matricesOf(const onnx::GraphProto &graph) {
  Uses uses(graph);
  std::vector<const Tensor *> matrices;
  for (const Tensor &tensor : graph.initializer()) {
    if (!isFloatType(tensor.data_type()) || tensor.dims_size() != 2 ||
        elementCount(tensor.dims()) < 2 || uses.isOutput(tensor.name()))
      continue;
    if (llvm::any_of(uses.sites(tensor.name()), [](const Site &site) {
          return site.use == Use::weight || site.use == Use::table;
        }))
      matrices.push_back(&tensor);
  }
  return matrices;
}

/// What PyTorch's newer exporter calls a layer's transposed weight, and a transposition.
static bool isTranspositionName(StringRef name) {
  static const llvm::Regex calls("^(t|mT|numpy_t|permute|transpose)(_[0-9]+)?$");
  return isConstantName(name) || calls.match(name);
}

/// Whether `made` is `own` transposed. Bytes that cannot be read are reported where they are used.
static bool isTied(OnnxModel &model, WeightStore &weights, const Tensor &made, const Tensor &own) {
  if (&made == &own || !haveSwappedShapes(made, own))
    return false;
  auto told = model.foldedFrom.find(made.name());
  bool isTold = told != model.foldedFrom.end();
  if (isTold ? told->second != std::vector{own.name()}
             : !isConstantName(made.name()) || isConstantName(own.name()))
    return false;
  auto madeBytes = initializerBytes(model, made, weights);
  auto ownBytes = initializerBytes(model, own, weights);
  bool tied = madeBytes && ownBytes && isTranspose(made, *madeBytes, *ownBytes) &&
              ((isTold && isTranspositionName(made.name())) || !haveSwappedShapes(own, own) ||
               !isTranspose(own, *ownBytes, *ownBytes));
  llvm::consumeError(madeBytes.takeError());
  llvm::consumeError(ownBytes.takeError());
  return tied;
}

void mpc::import::restoreTransposedTies(OnnxModel &model, WeightStore &weights) {
  std::vector<const Tensor *> matrices = matricesOf(model.proto.graph());
  std::map<std::string, std::string> ties; // the transposed one → the parameter
  std::set<std::string> owns;
  for (const Tensor *made : matrices)
    for (const Tensor *own : matrices)
      if (!ties.count(own->name()) && !owns.count(made->name()) &&
          isTied(model, weights, *made, *own)) {
        ties[made->name()] = own->name();
        owns.insert(own->name());
        break;
      }
  if (ties.empty())
    return;
  onnx::GraphProto &graph = *model.proto.mutable_graph();
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
  for (auto &[made, own] : ties) {
    onnx::NodeProto &node = *nodes.Add();
    node.set_op_type("Transpose");
    node.set_name(made + "_transpose");
    node.add_input(own);
    node.add_output(made);
    onnx::AttributeProto &perm = *node.add_attribute();
    perm.set_name("perm");
    perm.set_type(onnx::AttributeProto::INTS);
    perm.add_ints(1);
    perm.add_ints(0);
    model.data.erase(made);
    model.notes.push_back("'" + made + "' is '" + own +
                          "' transposed by the exporter: one parameter again");
  }
  for (onnx::NodeProto &node : *graph.mutable_node())
    nodes.Add()->Swap(&node);
  graph.mutable_node()->Swap(&nodes);
  auto isReplaced = [&](const auto &named) { return ties.count(named.name()) != 0; };
  auto erase = [&](auto &list) {
    list.erase(std::remove_if(list.begin(), list.end(), isReplaced), list.end());
  };
  erase(*graph.mutable_initializer());
  erase(*graph.mutable_input()); // where every initializer is an input too
}

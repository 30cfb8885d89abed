//===- Model.h - an ONNX model between the stages of import ---------------===//
//
// The stages work on the protobuf, one file each, in this order:
//
//   ModelFile        open, limits, parse; large weights stay in the mapped file
//   ExternalData     weights in other files of the model's folder
//   Check            the ONNX checker, versions
//   Subgraphs        initializers of subgraphs become the graph's
//   MergedParameters parameters that an exporter merged are separate again
//   TransposedTies   a tied matrix that an exporter transposed is tied again
//   LostDropout      what of attention an exporter left out is told
//   Functions        local functions are inlined
//   Dimensions       inputs get static shapes
//   Subgraphs        an If whose condition is constant becomes its branch
//   Attributes       numbers that no operator has
//   Shapes           ONNX shape inference
//   Types            operands have the types that their operators take
//   Functions        function bodies of operators without a conversion
//   Parameters       what each initializer is for
//   Overrides        which nodes options about precision mean
//   Emit             the module
//
// The first six are shared with the export template (compiler/export), so that names and
// initializers of the exported model are those the importer saw.
//
//===----------------------------------------------------------------------===//

#ifndef MPC_IMPORT_MODEL_H
#define MPC_IMPORT_MODEL_H

#include "compiler/import/Import.h"
#include "compiler/import/WeightStore.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/Twine.h"
#include <map>
#include <onnx/onnx_pb.h>
#include <set>
#include <string>
#include <vector>

namespace mpc::import {

/// Weights of so many bytes stay in the mapped file; smaller ones are parsed, since shape inference
/// reads some of them.
constexpr int64_t kKeepInFile = 4096;

/// Where an initializer's bytes lie: a range of a file that the WeightStore has mapped ("": the
/// store's own buffer).
struct DataRange {
  std::string file;
  int64_t offset = 0, bytes = 0;
};

struct Problem {
  std::string node; ///< the node's name; empty: of the whole file
  std::string text;
  bool unsupported = false; ///< about something that mpc does not have (compiler/ops/Unsupported.h)
};

/// What is wrong with a file; all of it is collected where that is possible.
struct Problems {
  std::vector<Problem> list;
  bool none() const { return list.empty(); }
  /// Always false, so that a stage can `return problems.add(...)`.
  bool add(const llvm::Twine &text) {
    list.push_back({"", text.str()});
    return false;
  }
  bool addUnsupported(const llvm::Twine &text) {
    list.push_back({"", text.str(), true});
    return false;
  }
  /// "node 'NAME' (OP, opset N): TEXT".
  bool add(const ::onnx::NodeProto &node, int64_t opset, const llvm::Twine &text);
};

struct OnnxModel {
  std::string path, folder;
  ::onnx::ModelProto proto;
  /// Initializers of the main graph whose bytes are in a mapped file. Those that are large have no
  /// data in `proto`.
  std::map<std::string, DataRange> data;
  std::vector<std::string> notes;  ///< for the user: what was changed
  std::set<std::string> constants; ///< scales and biases of norms that have none, by metadata
  /// Of initializers that PyTorch's exporter has computed: of which values, those between included.
  std::map<std::string, std::vector<std::string>> foldedFrom;

  int64_t opset(llvm::StringRef domain) const; ///< imported version; -1: not imported
};

// Stages. Each returns false after it has added to `problems`.

bool readModelFile(llvm::StringRef path, WeightStore &weights, OnnxModel &model,
                   Problems &problems);
bool resolveExternalData(OnnxModel &model, WeightStore &weights, Problems &problems);
bool checkModel(OnnxModel &model, Problems &problems);
void hoistSubgraphInitializers(OnnxModel &model);
void separateMergedParameters(OnnxModel &model, WeightStore &weights);
void restoreTransposedTies(OnnxModel &model, WeightStore &weights);
void noteLostDropout(OnnxModel &model);
/// All of the above.
bool loadModel(llvm::StringRef path, WeightStore &weights, OnnxModel &model, Problems &problems);

bool inlineLocalFunctions(OnnxModel &model, Problems &problems);
void inlineConstantConditions(OnnxModel &model);

struct BatchAxes {
  int64_t batch = 0;
  bool dynamic = false;                              ///< the file is for any size of the batch
  std::vector<std::pair<std::string, int64_t>> axes; ///< input name → axis of the batch
};
bool bindDimensions(OnnxModel &model, const ImportOptions &options, BatchAxes &batch,
                    Problems &problems);
bool checkAttributes(const OnnxModel &model, Problems &problems);
bool inferShapes(OnnxModel &model, Problems &problems);
bool checkTypes(const OnnxModel &model, Problems &problems);
/// Replaces operators without a conversion by their function bodies; shapes are inferred again.
bool expandFunctionBodies(OnnxModel &model, const ImportOptions &options, Problems &problems);

enum class InitializerRole { parameter, statistic, constant, unused };
struct Roles {
  std::map<std::string, InitializerRole> of; ///< every initializer of the main graph
  /// What --freeze names: parameters, then constants, and what BatchNormalization has of others.
  std::set<std::string> frozen;
  std::vector<std::string> leftOut; ///< "NAME: REASON", floating-point ones that are no parameters
  std::vector<std::string> notes;
};
bool assignRoles(OnnxModel &model, const ImportOptions &options, WeightStore &weights, Roles &roles,
                 Problems &problems);

/// Nodes of --keep-fp32 and --allow-half that match by the name of a result or of a constant that
/// they read, not by their own.
struct Overrides {
  std::vector<std::string> keepFp32, allowHalf;
};
void findOverrides(const OnnxModel &model, const Roles &roles, const ImportOptions &options,
                   Overrides &overrides, Problems &problems);

/// `lossInput`: a tensor of the graph that becomes one more result, of role "loss_input"; empty, an
/// output or no tensor: none does.
mlir::OwningOpRef<mlir::ModuleOp> emitModule(OnnxModel &model, const Roles &roles,
                                             const BatchAxes &batch, const Overrides &overrides,
                                             llvm::StringRef lossInput, WeightStore &weights,
                                             mlir::MLIRContext &context, Problems &problems);

// Tensors (Tensors.cpp).

llvm::StringRef elementTypeName(int32_t onnxType); ///< "FLOAT", …
int64_t elementBytes(int32_t onnxType);            ///< 0: a type mpc does not have
bool isFloatType(int32_t onnxType);                ///< FLOAT, DOUBLE, FLOAT16, BFLOAT16
/// The product of the dimensions; -1 if one is negative or the product (times 16 bytes) overflows.
template <typename Dims> int64_t elementCount(const Dims &dims) {
  int64_t count = 1;
  bool zero = false;
  for (int64_t dim : dims) {
    if (dim < 0)
      return -1;
    zero |= dim == 0;
    if (dim != 0 && __builtin_mul_overflow(count, dim, &count))
      return -1;
    if (count > (int64_t(1) << 58))
      return -1;
  }
  return zero ? 0 : count;
}
/// The tensor's elements, row-major and little-endian. An error says what does not fit.
llvm::Expected<std::vector<char>> tensorBytes(const ::onnx::TensorProto &tensor);
/// Where an initializer's bytes lie; puts them into the store's buffer if they are in no file as
/// they are.
llvm::Expected<DataRange> initializerData(OnnxModel &model, const ::onnx::TensorProto &tensor,
                                          WeightStore &weights);
/// The bytes themselves.
llvm::Expected<llvm::ArrayRef<char>>
initializerBytes(OnnxModel &model, const ::onnx::TensorProto &tensor, WeightStore &weights);
/// Element i of floating-point data.
double floatAt(llvm::ArrayRef<char> bytes, int32_t onnxType, int64_t i);
/// The smallest and the largest magnitude of a constant's floats but 0 and infinities, by which it
/// is known whether they can be rounded to half; nullopt where there is none.
std::optional<std::pair<double, double>> magnitudes(llvm::ArrayRef<char> bytes, int32_t onnxType);
/// The axes of `batch` indices along which all slices of a tensor are equal.
std::vector<int64_t> repeatedAxes(const ::onnx::TensorProto &tensor, llvm::ArrayRef<char> bytes,
                                  int64_t batch);
bool isUnsignedType(int32_t onnxType);
/// Unsigned integers as the signed type that takes their place: twice as wide, but for 64 bits.
/// Others as they are.
std::vector<char> widenUnsigned(llvm::ArrayRef<char> bytes, int32_t onnxType);
/// Whether all elements have the same bits.
bool isUniform(llvm::ArrayRef<char> bytes, int32_t onnxType);

// Graph helpers (Subgraphs.cpp).

/// The node's name, or that of its first result where it has none.
std::string nodeName(const ::onnx::NodeProto &node);
/// Renames values where a node and its subgraphs use them, and with `definitions` also where they
/// are made.
void renameValues(::onnx::NodeProto &node, const llvm::StringMap<std::string> &names,
                  bool definitions);
/// Every name of a value in the graph and its subgraphs.
void collectNames(const ::onnx::GraphProto &graph, llvm::StringSet<> &names);
/// Names that exporters make for constants: val_12, onnx::MatMul_34, /layer/Constant_output_0, 56.
bool isConstantName(llvm::StringRef name);
/// `name` if it is new, else name__2, name__3, …; adds it.
std::string uniqueName(llvm::StringRef name, llvm::StringSet<> &names);
/// The initializers that are no true inputs and the inputs that are: legacy files list every
/// initializer as an input too.
std::vector<const ::onnx::ValueInfoProto *> trueInputs(const ::onnx::GraphProto &graph);

// Uses of initializers (Uses.cpp).

/// What an operand of a node is for.
enum class Use { none, weight, scale, bias, table, state, arithmetic, mean, variance };
struct Site {
  const ::onnx::NodeProto *node;
  int operand;
  Use use;
  std::string alias; ///< the name under which the node has it, if an Identity gave it another one
};
Use operandUse(const ::onnx::NodeProto &node, int operand);
bool isView(const ::onnx::NodeProto &node,
            int operand); ///< a node through which a parameter is still that parameter

class Uses {
public:
  explicit Uses(const ::onnx::GraphProto &graph);
  struct Edge {
    const ::onnx::NodeProto *node;
    int operand;
  };
  llvm::ArrayRef<Edge> consumers(llvm::StringRef value) const;
  bool isOutput(llvm::StringRef value) const { return outputs.contains(value); }
  /// Where a value arrives through views. A use as something else is a site with Use::none.
  std::vector<Site> sites(llvm::StringRef value) const;

private:
  void addGraph(const ::onnx::GraphProto &graph);
  llvm::StringMap<std::vector<Edge>> edges;
  llvm::StringSet<> outputs;
};

// The exporter's metadata (Metadata.cpp).

/// What torch.export's graph signature calls the tensors of the program.
struct Signature {
  enum class Kind { none, parameter, buffer, constant, absent };
  bool present = false;
  llvm::StringMap<Kind> kinds; ///< by target name ("fc1.weight")
  struct Placeholder {
    Kind kind;
    std::string target;
  };
  llvm::StringMap<Placeholder> placeholders; ///< by placeholder name ("p_fc1_weight")
  Kind kind(llvm::StringRef name) const { return kinds.lookup(name); }
};
Signature readSignature(const ::onnx::ModelProto &model);
/// OnnxModel::foldedFrom; later stages drop what the file says of its values.
void readFolded(OnnxModel &model);
/// The values that a node's originating call had as arguments, in their order: of kind none what
/// the signature does not list, of kind absent a None.
std::vector<Signature::Placeholder> callArguments(const ::onnx::NodeProto &node,
                                                  const Signature &signature);
/// Whether the call reads a value of that name which is no parameter, buffer or constant: of an
/// initializer, one that another call has made.
bool readsResult(const ::onnx::NodeProto &node, llvm::StringRef name, const Signature &signature);
/// The call as the exporter prints it; empty: the metadata does not tell.
llvm::StringRef callText(const ::onnx::NodeProto &node);
/// The function that the call is of: "torch.ops.aten.layer_norm.default".
llvm::StringRef callTarget(const ::onnx::NodeProto &node);
/// Up to opset 20 PyTorch's exporter writes group_norm as an InstanceNormalization by ones and
/// zeros, and behind it a product and a sum with the parameters, in another shape and under other
/// names; from opset 21 on as a GroupNormalization by the parameters.
bool isInGroupNorm(const ::onnx::NodeProto &node);
/// That product or that sum reads the value.
bool isGroupNormAffine(const Site &site);
/// What a normalization's call has in the place of the scale or bias that the site reads: of kind
/// absent also where the site begins a group_norm, none where the file does not tell.
Signature::Placeholder normArgument(const Site &site, const Signature &signature);
/// The scale or bias that the site reads is no parameter of the PyTorch model.
bool isNormConstant(const Site &site, const Signature &signature);
/// The module whose method the node's call is in, "layers.2"; empty: the metadata does not tell.
llvm::StringRef callModule(const ::onnx::NodeProto &node);

} // namespace mpc::import

#endif // MPC_IMPORT_MODEL_H

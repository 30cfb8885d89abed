//===- Messages.cpp - diagnostics as users read them ----------------------------------------===//
//
// Handlers and passes stream MLIR's types into their messages; who wrote a model knows ONNX's.
// Names in a message come from the file: what a terminal would obey is escaped.
//
//===--------------------------------------------------------------------------------------===//

#include "compiler/driver/Messages.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/Support/ConvertUTF.h"
#include "llvm/Support/Format.h"

using namespace mlir;
using namespace mpc;

static std::string elementName(Type type) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (type.isInteger(1))
    os << "bool";
  else if (isa<IntegerType>(type))
    os << "int" << type.getIntOrFloatBitWidth();
  else if (type.isBF16())
    os << "bfloat16";
  else if (isa<FloatType>(type))
    os << "float" << type.getIntOrFloatBitWidth();
  else
    os << type;
  return text;
}

std::string mpc::messageText(const Diagnostic &diagnostic) {
  std::string text;
  llvm::raw_string_ostream os(text);
  for (const DiagnosticArgument &argument : diagnostic.getArguments()) {
    auto tensor = argument.getKind() == DiagnosticArgument::DiagnosticArgumentKind::Type
                      ? dyn_cast<RankedTensorType>(argument.getAsType())
                      : RankedTensorType();
    if (!tensor || !tensor.hasStaticShape()) {
      argument.print(os);
      continue;
    }
    os << "'" << elementName(tensor.getElementType()) << "[";
    llvm::interleaveComma(tensor.getShape(), os);
    os << "]'";
  }
  return printable(text);
}

std::string mpc::printable(StringRef text) {
  std::string shown;
  llvm::raw_string_ostream os(shown);
  while (!text.empty()) {
    auto *begin = reinterpret_cast<const llvm::UTF8 *>(text.data());
    unsigned length = llvm::getUTF8SequenceSize(begin, begin + text.size());
    auto first = static_cast<unsigned char>(text.front());
    // Terminals obey U+0080 to U+009F, too.
    bool isControl = first < 0x20 || first == 0x7f ||
                     (length == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0);
    if (length == 0 || isControl) {
      os << llvm::format("\\x%02x", unsigned(first));
      length = 1;
    } else {
      os << text.take_front(length);
    }
    text = text.drop_front(length);
  }
  return shown;
}

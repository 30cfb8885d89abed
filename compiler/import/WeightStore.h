//===- WeightStore.h - the bytes behind #mpc.weights ------------------------------===//

#ifndef MPC_IMPORT_WEIGHTSTORE_H
#define MPC_IMPORT_WEIGHTSTORE_H

#include "MpcDialect.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"
#include <memory>
#include <string>

namespace mpc {

/// Maps the files that #mpc.weights attributes name, each once, read only; owns the buffer of the empty name. The file names are those the importer
/// found and checked: nothing outside the model's folder is ever opened.
class WeightStore {
public:
  /// The bytes of a weights attribute. Valid as long as the store. An error names the file and the range.
  llvm::Expected<llvm::ArrayRef<char>> bytes(WeightsAttr weights);
  /// Appends to the importer's own buffer, 64-byte aligned; returns the offset.
  int64_t append(llvm::ArrayRef<char> data);

private:
  llvm::StringMap<std::unique_ptr<llvm::MemoryBuffer>> files;
  std::string own;
};

} // namespace mpc

#endif // MPC_IMPORT_WEIGHTSTORE_H

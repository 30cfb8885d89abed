//===- WeightStore.h - the bytes behind #mpc.weights ----------------------===//

#ifndef MPC_IMPORT_WEIGHTSTORE_H
#define MPC_IMPORT_WEIGHTSTORE_H

#include "MpcDialect.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace mpc {

/// Maps the files that #mpc.weights attributes name, each once, read only; owns the buffer of the
/// empty name. The file names are those the importer found and checked: nothing outside the model's
/// folder is ever opened.
class WeightStore {
public:
  /// The bytes of a weights attribute. Valid as long as the store. An error names the file and the
  /// range.
  llvm::Expected<llvm::ArrayRef<char>> bytes(WeightsAttr weights);
  llvm::Expected<llvm::ArrayRef<char>> bytes(llvm::StringRef file, int64_t offset, int64_t size);
  /// Appends to the importer's own buffer, 64-byte aligned; returns the offset.
  int64_t append(llvm::ArrayRef<char> data);
  /// Maps an open file under a name and returns its bytes. The caller keeps the descriptor. An
  /// error says why it cannot be read.
  llvm::Expected<llvm::ArrayRef<char>> map(llvm::StringRef name, int descriptor, int64_t size);
  /// The bytes of a file mapped before, or nullopt.
  std::optional<llvm::ArrayRef<char>> mapped(llvm::StringRef name) const;

private:
  llvm::StringMap<std::unique_ptr<llvm::MemoryBuffer>> files;
  std::deque<std::vector<char>> own; ///< one piece per append: earlier ones must not move
  std::vector<int64_t> starts;       ///< offset of each piece
  int64_t ownSize = 0;
};

} // namespace mpc

#endif // MPC_IMPORT_WEIGHTSTORE_H

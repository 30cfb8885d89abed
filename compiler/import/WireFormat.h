//===- WireFormat.h - protobuf's bytes without protobuf -------------------===//
//
// protobuf copies every bytes field it parses, and cannot tell where in the file it was.
// Weights are used where they lie, so their offsets are found by walking the fields.
//
//===----------------------------------------------------------------------===//

#ifndef MPC_IMPORT_WIREFORMAT_H
#define MPC_IMPORT_WIREFORMAT_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <cstdint>
#include <string>
#include <vector>

namespace mpc::import {

struct WireField {
  uint32_t number,
      type; ///< field number; 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes
  uint64_t start, begin, end; ///< offsets of the tag, the payload, and behind it
};

enum class WireStatus { whole, truncated, malformed };

/// Calls `visit` for every field of the message in [begin, end); stops where `visit` returns
/// something else than `whole`.
WireStatus walkMessage(llvm::ArrayRef<char> file, uint64_t begin, uint64_t end,
                       llvm::function_ref<WireStatus(const WireField &)> visit);

/// The data of one of graph.initializer, in the file's order.
struct WireInitializer {
  bool hasRaw = false;  ///< it has a raw_data field
  bool removed = false; ///< which is left out of the skeleton
  uint64_t offset = 0, bytes = 0;
};

/// Finds raw_data of the graph's initializers. With `skeleton`, also writes the model without those
/// of at least `threshold` bytes.
WireStatus scanInitializers(llvm::ArrayRef<char> file, std::vector<WireInitializer> &initializers,
                            std::string *skeleton, uint64_t threshold);

} // namespace mpc::import

#endif // MPC_IMPORT_WIREFORMAT_H

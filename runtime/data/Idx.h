//===- Idx.h - MNIST's files ----------------------------------------------------------===//

#ifndef MPC_RUNTIME_DATA_IDX_H
#define MPC_RUNTIME_DATA_IDX_H

#include "runtime/data/Array.h"

namespace mpc {

/// Reads an IDX file, plain or compressed with gzip (told apart by content). Throws Error naming
/// the file: bad magic, cut off or too long (bytes wanted and found). Never allocates more than
/// the file holds.
Array readIdx(const std::string &path);

} // namespace mpc

#endif // MPC_RUNTIME_DATA_IDX_H

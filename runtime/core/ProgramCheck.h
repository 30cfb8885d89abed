//===- ProgramCheck.h - consistency of a program's library commands -------------===//

#ifndef MPC_RUNTIME_CORE_PROGRAMCHECK_H
#define MPC_RUNTIME_CORE_PROGRAMCHECK_H

#include "runtime/core/Program.h"

namespace mpc {

/// Throws Error, beginning with `where`, unless the shapes, types and attributes of a library
/// command fit each other.
void checkCommand(const Command &command, const std::string &where);

/// Product of the dimensions. Throws Error, beginning with `where`, for a negative dimension or a
/// product that does not fit.
int64_t checkedElements(const std::vector<int64_t> &shape, const std::string &where);

/// "[64, 3, 28, 28]"
std::string shapeText(const std::vector<int64_t> &shape);

} // namespace mpc

#endif // MPC_RUNTIME_CORE_PROGRAMCHECK_H

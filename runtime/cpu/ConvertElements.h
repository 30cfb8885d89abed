//===- ConvertElements.h - initial values of one type as another ------------------===//

#ifndef MPC_RUNTIME_CPU_CONVERTELEMENTS_H
#define MPC_RUNTIME_CPU_CONVERTELEMENTS_H

#include "runtime/core/Program.h"

namespace mpc {

/// `count` elements of any types, through double (integers through int64). Throws Error where one
/// type is an integer and the other is not.
void convertElements(ElementType from_type, const void *from, ElementType to_type, void *to,
                     int64_t count);

} // namespace mpc

#endif // MPC_RUNTIME_CPU_CONVERTELEMENTS_H

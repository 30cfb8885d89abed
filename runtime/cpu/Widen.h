//===- Widen.h - operands of one type as another --------------------------------===//

#ifndef MPC_RUNTIME_CPU_WIDEN_H
#define MPC_RUNTIME_CPU_WIDEN_H

#include "runtime/core/Program.h"

namespace mpc::cpu {

/// Reads `count` elements into the compute type C: f32, bf16 or f16 into float, f64 into double.
template <typename C> using LoadFunction = void (*)(const void *from, C *to, int64_t count);
/// Rounds `count` results once and writes them.
template <typename C> using StoreFunction = void (*)(const C *from, void *to, int64_t count);

template <typename C> LoadFunction<C> loadFunction(ElementType type);
template <typename C> StoreFunction<C> storeFunction(ElementType type);

/// The same for a whole operand, on up to `threads` threads.
void widen(ElementType type, const void *from, float *to, int64_t count, int threads);
void narrow(ElementType type, const float *from, void *to, int64_t count, int threads);

} // namespace mpc::cpu

#endif // MPC_RUNTIME_CPU_WIDEN_H

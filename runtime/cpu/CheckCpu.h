//===- CheckCpu.h - the instructions that a program needs -------------------------===//

#ifndef MPC_RUNTIME_CPU_CHECKCPU_H
#define MPC_RUNTIME_CPU_CHECKCPU_H

#include "runtime/core/Program.h"

namespace mpc::cpu {

/// Throws Error, naming what is missing, if the program's kernels use instructions that this CPU
/// lacks. What they need is taken from `build_facts` ("cpu-features: +avx2,+fma,…"), or from the
/// level that `cpu` names (x86-64-v3, …).
void checkCpu(const Program &program);

std::string cpuDescription(); ///< "AVX-512 BF16": the best that this CPU has for products

} // namespace mpc::cpu

#endif // MPC_RUNTIME_CPU_CHECKCPU_H

//===- CheckCpu.cpp - the instructions that a program needs -----------------------===//
//
// An instruction that the CPU lacks ends a program without a word, so the features that the
// code generator was allowed to use are compared with the CPU's before the first kernel.
//
//===----------------------------------------------------------------------------===//

#include "runtime/cpu/CheckCpu.h"
#include "runtime/core/Error.h"
#include <cstring>
#include <sstream>

using namespace mpc;

namespace {

struct Feature {
  const char *name; // LLVM's
  bool (*present)();
};
#define MPC_FEATURE(llvm, gcc) {llvm, [] { return __builtin_cpu_supports(gcc) != 0; }}
const Feature kFeatures[] = {
    MPC_FEATURE("sse3", "sse3"),
    MPC_FEATURE("ssse3", "ssse3"),
    MPC_FEATURE("sse4.1", "sse4.1"),
    MPC_FEATURE("sse4.2", "sse4.2"),
    MPC_FEATURE("popcnt", "popcnt"),
    MPC_FEATURE("avx", "avx"),
    MPC_FEATURE("avx2", "avx2"),
    MPC_FEATURE("fma", "fma"),
    MPC_FEATURE("f16c", "f16c"),
    MPC_FEATURE("bmi", "bmi"),
    MPC_FEATURE("bmi2", "bmi2"),
    MPC_FEATURE("lzcnt", "lzcnt"),
    MPC_FEATURE("movbe", "movbe"),
    MPC_FEATURE("avx512f", "avx512f"),
    MPC_FEATURE("avx512bw", "avx512bw"),
    MPC_FEATURE("avx512cd", "avx512cd"),
    MPC_FEATURE("avx512dq", "avx512dq"),
    MPC_FEATURE("avx512vl", "avx512vl"),
    MPC_FEATURE("avx512vbmi", "avx512vbmi"),
    MPC_FEATURE("avx512vbmi2", "avx512vbmi2"),
    MPC_FEATURE("avx512vnni", "avx512vnni"),
    MPC_FEATURE("avx512bitalg", "avx512bitalg"),
    MPC_FEATURE("avx512vpopcntdq", "avx512vpopcntdq"),
    MPC_FEATURE("avx512ifma", "avx512ifma"),
    MPC_FEATURE("avx512bf16", "avx512bf16"),
    MPC_FEATURE("avx512fp16", "avx512fp16"),
    MPC_FEATURE("avxvnni", "avxvnni"),
    MPC_FEATURE("gfni", "gfni"),
    MPC_FEATURE("sse4a", "sse4a"),
    MPC_FEATURE("xop", "xop"),
    MPC_FEATURE("fma4", "fma4"),
};
#undef MPC_FEATURE

// What each level of the x86-64 ABI adds to the one before.
const char *const kLevels[] = {"", "sse3,ssse3,sse4.1,sse4.2,popcnt",
                               "avx,avx2,fma,f16c,bmi,bmi2,lzcnt,movbe",
                               "avx512f,avx512bw,avx512cd,avx512dq,avx512vl"};

/// The features after "cpu-features:" in the build facts, or those of the level; empty if neither
/// says.
std::string required(const Program &program) {
  const char *const key = "cpu-features:";
  size_t at = program.build_facts.find(key);
  if (at != std::string::npos) {
    size_t begin = at + std::strlen(key);
    size_t end = program.build_facts.find_first_of(";\n", begin);
    return program.build_facts.substr(begin, end == std::string::npos ? end : end - begin);
  }
  std::string all;
  const std::string prefix = "x86-64-v";
  if (program.cpu.rfind(prefix, 0) == 0 && program.cpu.size() == prefix.size() + 1) {
    int level = program.cpu.back() - '0';
    for (int i = 1; i < level && i < 4; ++i)
      all += std::string(kLevels[i]) + ",";
  }
  return all;
}

} // namespace

void mpc::cpu::checkCpu(const Program &program) {
  std::stringstream names(required(program));
  std::string missing, name;
  while (std::getline(names, name, ',')) {
    name.erase(0, name.find_first_not_of(" +"));
    name.erase(name.find_last_not_of(" \r\t") + 1);
    for (const Feature &feature : kFeatures)
      if (name == feature.name && !feature.present())
        missing.append(missing.empty() ? "" : ", ").append(name);
  }
  if (!missing.empty())
    throw Error("this program was compiled for the CPU '" + program.cpu +
                "' and needs instructions that this CPU does not have: " + missing +
                ". Compile it here, or with --cpu=x86-64-v3 (AVX2) or --cpu=x86-64");
}

std::string mpc::cpu::cpuDescription() {
  if (__builtin_cpu_supports("amx-bf16"))
    return "AMX";
  if (__builtin_cpu_supports("avx512bf16"))
    return "AVX-512 BF16";
  if (__builtin_cpu_supports("avx512bw"))
    return "AVX-512";
  if (__builtin_cpu_supports("avx2"))
    return "AVX2";
  return "SSE";
}

//===- Widen.cpp - operands of one type as another --------------------------------===//
//
// Half types are storage: arithmetic is f32. Where the library has no half primitive for a
// CPU, operands are widened before it, and its result is rounded once.
//
//===----------------------------------------------------------------------------===//

#include "runtime/cpu/Widen.h"
#include "runtime/cpu/Kernels.h"
#include "runtime/cpu/Threads.h"
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>

using namespace mpc;
using namespace mpc::cpu;

static const Kernels &chooseKernels() {
  auto allowed = [](dnnl_cpu_isa_t isa) { return (dnnl_get_effective_cpu_isa() & isa) == isa; };
  if (allowed(dnnl_cpu_isa_avx512_core))
    return kKernelsAvx512;
  if (allowed(dnnl_cpu_isa_avx2) && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("fma"))
    return kKernelsAvx2;
  return kKernelsBase;
}

const Kernels &mpc::cpu::kernels() {
  static const Kernels &chosen = chooseKernels();
  return chosen;
}

template <typename C> static void copyLoad(const void *from, C *to, int64_t count) {
  std::memcpy(to, from, size_t(count) * sizeof(C));
}
template <typename C> static void copyStore(const C *from, void *to, int64_t count) {
  std::memcpy(to, from, size_t(count) * sizeof(C));
}

template <> LoadFunction<float> mpc::cpu::loadFunction<float>(ElementType type) {
  return type == ElementType::f16    ? kernels().f16_to_f32
         : type == ElementType::bf16 ? kernels().bf16_to_f32
                                     : copyLoad<float>;
}
template <> LoadFunction<double> mpc::cpu::loadFunction<double>(ElementType) {
  return copyLoad<double>;
}
template <> StoreFunction<float> mpc::cpu::storeFunction<float>(ElementType type) {
  return type == ElementType::f16    ? kernels().f32_to_f16
         : type == ElementType::bf16 ? kernels().f32_to_bf16
                                     : copyStore<float>;
}
template <> StoreFunction<double> mpc::cpu::storeFunction<double>(ElementType) {
  return copyStore<double>;
}

// Elements worth a thread of their own: some 10 µs of work.
static constexpr int64_t kGrain = 1 << 16;

void mpc::cpu::widen(ElementType type, const void *from, float *to, int64_t count, int threads) {
  LoadFunction<float> load = loadFunction<float>(type);
  size_t size = elementSize(type);
  parallelRanges(count, kGrain, threads, [&](int64_t begin, int64_t end) {
    load(static_cast<const char *>(from) + begin * size, to + begin, end - begin);
  });
}

void mpc::cpu::narrow(ElementType type, const float *from, void *to, int64_t count, int threads) {
  StoreFunction<float> store = storeFunction<float>(type);
  size_t size = elementSize(type);
  parallelRanges(count, kGrain, threads, [&](int64_t begin, int64_t end) {
    store(from + begin, static_cast<char *>(to) + begin * size, end - begin);
  });
}

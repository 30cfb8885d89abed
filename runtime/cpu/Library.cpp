//===- Library.cpp - how each library command is executed -------------------------===//
//
// The choice is made once, at start, from the shape, the type and what oneDNN has for this
// CPU; docs/cpu-library.md shows the measurements.
//
//===----------------------------------------------------------------------------===//

#include "runtime/cpu/Library.h"
#include "runtime/cpu/ConvolutionShape.h"
#include "runtime/cpu/DnnlCommand.h"
#include "runtime/data/Array.h"
#include <algorithm>

using namespace mpc;
using namespace mpc::cpu;

double mpc::cpu::multiplications(const Command &c) {
  if (c.kind != CommandKind::matmul)
    return ConvolutionShape(c).multiplications();
  double product = double(c.transpose_lhs ? c.lhs.shape[c.lhs.shape.size() - 2]
                                          : c.lhs.shape[c.lhs.shape.size() - 1]);
  for (int64_t dim : c.result.shape)
    product *= double(dim);
  return product;
}

static std::unique_ptr<LibraryCommand> make(Library &library, const Command &c, Path path) {
  bool matmul = c.kind == CommandKind::matmul;
  if (path == Path::plain)
    return matmul ? makePlainMatmul(library, c) : makePlainConvolution(library, c);
  bool widened = path == Path::widened;
  if (c.lhs.type == ElementType::f64 || (widened && !isHalf(c.lhs.type)))
    return nullptr;
  try {
    return matmul ? makeDnnlMatmul(library, c, widened) : makeDnnlConvolution(library, c, widened);
  } catch (const dnnl::error &) {
    return nullptr; // a combination that the library refuses; the plain loops know all
  }
}

static bool cpuHas(dnnl_cpu_isa_t isa) { return (dnnl_get_effective_cpu_isa() & isa) == isa; }

// Whether oneDNN computes in this half type with the CPU's own instructions, and so faster than in
// f32. Without them it emulates bf16 (38 GFLOP/s where f32 has 110); AVX-512 FP16 alone has f32's
// rate, and its convolutions are slower than f32's.
static bool halfIsFast(const Command &c) {
  bool f16 = c.lhs.type == ElementType::f16;
  if (cpuHas(f16 ? dnnl_cpu_isa_avx512_core_amx_fp16 : dnnl_cpu_isa_avx512_core_bf16))
    return true;
  if (!cpuHas(dnnl_cpu_isa_avx512_core))
    return cpuHas(dnnl_cpu_isa_avx2_vnni_2);
  return f16 && c.kind == CommandKind::matmul && cpuHas(dnnl_cpu_isa_avx512_core_fp16);
}

static double elements(const Operand &o) { return double(elementCount(o.shape)); }

// Little arithmetic on much data, which does not stay in cache when it is widened as a whole: the
// plain product, which widens while it packs, is faster. Where its left operand has to be
// transposed, it is not.
static bool widensTooMuch(const Command &c) {
  if (c.kind == CommandKind::conv_backward_weights ||
      (c.kind == CommandKind::matmul ? c.transpose_lhs : c.groups != 1))
    return false;
  double bytes = 4 * (elements(c.lhs) + (c.rhs.is_weight ? 0 : elements(c.rhs)) +
                      (isHalf(c.result.type) ? elements(c.result) : 0));
  return bytes > double(8 << 20) && bytes > 0.03 * multiplications(c);
}

// Multiplications that the plain product makes, which always computes whole vectors of columns.
static double plainMultiplications(const Command &c) {
  double columns = double(c.kind == CommandKind::matmul ? c.result.shape.back() : 32);
  return multiplications(c) * std::max(1.0, 32 / std::max(columns, 1.0));
}

// The ways to try, best first; plain is always possible.
static std::vector<Path> preference(const Command &c) {
  // Below this, starting oneDNN and its threads costs as much as the product itself.
  constexpr double small = 200'000;
  if (c.lhs.type == ElementType::f64 || plainMultiplications(c) < small)
    return {Path::plain};
  bool plain_half = widensTooMuch(c) || isDepthwise(c);
  if (!isHalf(c.lhs.type) || halfIsFast(c))
    return {Path::native, plain_half ? Path::plain : Path::widened, Path::plain};
  if (plain_half)
    return {Path::plain};
  return {Path::widened, Path::plain};
}

std::unique_ptr<LibraryCommand> mpc::cpu::makeLibraryCommand(Library &library, const Command &c) {
  std::vector<Path> paths = preference(c);
  if (library.path != Path::automatic)
    paths.insert(paths.begin(), library.path);
  for (Path path : paths)
    if (auto command = make(library, c, path))
      return command;
  return make(library, c, Path::plain);
}

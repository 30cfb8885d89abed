//===- Library.cpp - how each library command is executed -------------------------===//
//
// The choice is made once, at start, from the shape, the type and what oneDNN has for this
// CPU; docs/cpu-library.md shows the measurements.
//
//===----------------------------------------------------------------------------===//

#include "runtime/cpu/Library.h"
#include "runtime/cpu/ConvolutionShape.h"
#include "runtime/cpu/DnnlCommand.h"

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

// The ways to try, best first; plain is always possible.
static std::vector<Path> preference(const Command &c) {
  // Below this, starting oneDNN costs more than the product itself.
  constexpr double small = 100'000;
  if (c.lhs.type == ElementType::f64 || multiplications(c) < small)
    return {Path::plain};
  return {Path::native, Path::widened, Path::plain};
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

//===- Regroup.cpp - one row-major order, cut into dimensions in different ways ---===//

#include "passes/Regroup.h"
#include "llvm/ADT/STLExtras.h"

using namespace mpc;

int64_t mpc::suffixProduct(llvm::ArrayRef<int64_t> shape, int64_t d) {
  int64_t product = 1;
  for (int64_t i = d + 1; i < static_cast<int64_t>(shape.size()); ++i)
    product *= shape[i];
  return product;
}

void mpc::addCut(Cuts &cuts, int64_t cut, int64_t elements) {
  if (cut <= 1 || cut >= elements || elements % cut != 0)
    return;
  for (int64_t other : cuts)
    if (other == cut || std::max(other, cut) % std::min(other, cut) != 0)
      return;
  cuts.insert(llvm::lower_bound(cuts, cut), cut);
}

Shape mpc::shapeWithCuts(const Cuts &cuts, int64_t elements) {
  Shape shape;
  int64_t behind = elements;
  for (int64_t cut : llvm::reverse(cuts)) {
    shape.push_back(behind / cut);
    behind = cut;
  }
  if (behind > 1)
    shape.push_back(behind);
  return shape;
}

std::optional<llvm::SmallVector<Atom>> mpc::refine(llvm::ArrayRef<int64_t> first,
                                                   llvm::ArrayRef<int64_t> second) {
  llvm::SmallVector<Atom> atoms;
  int64_t i = first.size() - 1, j = second.size() - 1;
  int64_t a = i >= 0 ? first[i] : 1, b = j >= 0 ? second[j] : 1;
  while (true) {
    while (a == 1 && i > 0)
      a = first[--i];
    while (b == 1 && j > 0)
      b = second[--j];
    if (a == 1 && b == 1)
      break;
    int64_t size = std::min(a, b);
    if (a % size != 0 || b % size != 0 || size == 1)
      return std::nullopt;
    atoms.push_back({size, i, j});
    a /= size;
    b /= size;
  }
  std::reverse(atoms.begin(), atoms.end());
  return atoms;
}

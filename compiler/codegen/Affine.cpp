//===- Affine.cpp - index expressions of generated loops -------------------------===//

#include "compiler/codegen/Affine.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <numeric>

using namespace mlir;

namespace mpc {

Affine Affine::operator+(const Affine &other) const {
  Affine sum(constant + other.constant);
  auto a = terms.begin(), b = other.terms.begin();
  while (a != terms.end() || b != other.terms.end()) {
    if (b == other.terms.end() || (a != terms.end() && a->first < b->first)) {
      sum.terms.push_back(*a++);
    } else if (a == terms.end() || b->first < a->first) {
      sum.terms.push_back(*b++);
    } else {
      if (int64_t c = a->second + b->second)
        sum.terms.push_back({a->first, c});
      ++a, ++b;
    }
  }
  return sum;
}

Affine Affine::operator*(int64_t factor) const {
  Affine product(constant * factor);
  if (factor)
    for (auto [base, coefficient] : terms)
      product.terms.push_back({base, coefficient * factor});
  return product;
}

Affine IndexSpace::addBase(int64_t min, int64_t max, unsigned depth, int64_t unit, Value value) {
  if (min == max)
    return Affine(min);
  bases.push_back({min, max, depth, unit, value});
  Affine index;
  index.terms.push_back({static_cast<unsigned>(bases.size() - 1), 1});
  return index;
}

std::pair<int64_t, int64_t> IndexSpace::range(const Affine &index) const {
  int64_t low = index.constant, high = index.constant;
  for (auto [id, c] : index.terms) {
    low += c * (c > 0 ? bases[id].min : bases[id].max);
    high += c * (c > 0 ? bases[id].max : bases[id].min);
  }
  return {low, high};
}

bool IndexSpace::within(const Affine &index, int64_t low, int64_t high) const {
  auto [min, max] = range(index);
  return low <= min && max < high;
}

unsigned IndexSpace::depth(const Affine &index) const {
  unsigned deepest = 0;
  for (auto [id, c] : index.terms)
    deepest = std::max(deepest, bases[id].depth);
  return deepest;
}

std::pair<Value, Value> IndexSpace::divideValues(const Affine &, int64_t) { return {}; }

std::pair<Affine, Affine> IndexSpace::divide(const Affine &index, int64_t divisor) {
  if (divisor == 1)
    return {index, Affine(0)};
  if (within(index, 0, divisor))
    return {Affine(0), index};

  // What the coefficients hold of the divisor divides exactly.
  Affine quotient(llvm::divideFloorSigned(index.constant, divisor));
  Affine rest(index.constant - quotient.constant * divisor);
  for (auto [id, c] : index.terms) {
    if (c / divisor)
      quotient.terms.push_back({id, c / divisor});
    if (c % divisor)
      rest.terms.push_back({id, c % divisor});
  }
  auto [low, high] = range(rest);
  int64_t whole = llvm::divideFloorSigned(low, divisor);
  if (whole == llvm::divideFloorSigned(high, divisor))
    return {quotient + whole, rest + Affine(-whole * divisor)};

  // (g · x + y) / (g · d) is x / d where 0 ≤ y < g.
  SmallVector<int64_t> factors;
  for (auto [id, c] : rest.terms)
    factors.push_back(std::gcd(c, divisor));
  llvm::sort(factors, std::greater<>());
  for (int64_t g : factors) {
    if (g == 1)
      break;
    Affine x(llvm::divideFloorSigned(rest.constant, g)), y(rest.constant - x.constant * g);
    for (auto [id, c] : rest.terms)
      c % g ? y.terms.push_back({id, c}) : x.terms.push_back({id, c / g});
    if (!within(y, 0, g))
      continue;
    auto [q, r] = divide(x, divisor / g);
    return {quotient + q, r * g + y};
  }

  // A real division, of a value that is not negative.
  int64_t shift = low < 0 ? llvm::divideCeilSigned(-low, divisor) : 0;
  rest = rest + Affine(shift * divisor);
  auto [known, isNew] = divisions.try_emplace({rest, divisor});
  if (isNew) {
    auto [q, r] = divideValues(rest, divisor);
    unsigned at = depth(rest);
    bool plain = rest.terms.size() == 1 && rest.terms[0].second == 1 && rest.constant == 0;
    int64_t unit = plain ? bases[rest.terms[0].first].unit : 0;
    int64_t min = (low + shift * divisor) / divisor, max = (high + shift * divisor) / divisor;
    known->second = {addBase(min, max, at, unit * divisor, q),
                     addBase(0, divisor - 1, at, unit, r)};
  }
  return {quotient + known->second.first + Affine(-shift), known->second.second};
}

SmallVector<Affine> IndexSpace::split(const Affine &linear, ArrayRef<int64_t> shape) {
  SmallVector<Affine> indices(shape.size());
  Affine rest = linear;
  for (size_t i = shape.size(); i-- > 0;) {
    if (i == 0)
      indices[0] = shape[0] == 1 ? Affine(0) : rest;
    else
      std::tie(rest, indices[i]) = divide(rest, shape[i]);
  }
  return indices;
}

Affine IndexSpace::join(ArrayRef<Affine> indices, ArrayRef<int64_t> shape) {
  Affine linear;
  for (size_t i = 0; i < shape.size(); ++i)
    linear = linear * shape[i] + indices[i];
  return linear;
}

} // namespace mpc

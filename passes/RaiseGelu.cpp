//===- RaiseGelu.cpp - GELU written out ------------------------------------------===//
//
// Exporters arrange the factors of GELU in many ways: 0.5·x·(1 + t), x·(0.5·(1 + t)),
// (x·0.5)·(t + 1), with x·x·x or x·x² in the argument of the tanh. Instead of a pattern per
// arrangement the expression is multiplied out: as a polynomial in x and t = erf(u) or
// tanh(u) it is 0.5·x + 0.5·x·t, and u as a polynomial in x is x/√2, or
// √(2/π)·x + √(2/π)·0.044715·x³. Coefficients may differ by exporters' f32 constants.
//
//===----------------------------------------------------------------------------===//

#include "RaiseGelu.h"
#include "FunctionArguments.h"
#include "compiler/ops/Build.h"
#include "llvm/ADT/SetVector.h"
#include <map>

using namespace mlir;
using namespace mpc;

namespace {
/// Coefficients by the powers of x and t.
using Polynomial = std::map<std::pair<int, int>, double>;

/// Multiplies an expression out. `inside` collects the operations that it is made of.
struct Expansion {
  Value x, t;
  llvm::SetVector<Operation *> inside;

  std::optional<Polynomial> of(Value v, int depth = 0);
};
} // namespace

static Polynomial times(const Polynomial &a, const Polynomial &b) {
  Polynomial product;
  for (auto &[p, c] : a)
    for (auto &[q, d] : b)
      product[{p.first + q.first, p.second + q.second}] += c * d;
  return product;
}

std::optional<double> mpc::numberOf(Value v) {
  DenseFPElementsAttr elements;
  if (!matchPattern(v, m_Constant(&elements)) || !elements.isSplat())
    return std::nullopt;
  return elements.getSplatValue<APFloat>().convertToDouble();
}

std::optional<Polynomial> Expansion::of(Value v, int depth) {
  if (v == x)
    return Polynomial{{{1, 0}, 1.0}};
  if (v == t)
    return Polynomial{{{0, 1}, 1.0}};
  if (auto number = numberOf(v))
    return Polynomial{{{0, 0}, *number}};
  Operation *op = v.getDefiningOp();
  if (!op || depth > 8 || !isa<arith::AddFOp, arith::MulFOp, arith::DivFOp, math::PowFOp>(op))
    return std::nullopt;
  inside.insert(op);
  auto a = of(op->getOperand(0), depth + 1), b = of(op->getOperand(1), depth + 1);
  if (!a || !b)
    return std::nullopt;
  if (isa<arith::AddFOp>(op)) {
    for (auto &[power, coefficient] : *b)
      (*a)[power] += coefficient;
    return a;
  }
  if (isa<arith::MulFOp>(op))
    return times(*a, *b);
  auto number = numberOf(op->getOperand(1));
  if (!number || *number == 0)
    return std::nullopt;
  if (isa<arith::DivFOp>(op)) {
    for (auto &entry : *a)
      entry.second /= *number;
    return a;
  }
  if (*number != 2 && *number != 3)
    return std::nullopt;
  Polynomial power = times(*a, *a);
  return *number == 2 ? power : times(power, *a);
}

static bool equals(const Polynomial &p, const Polynomial &expected) {
  for (auto &[power, coefficient] : p)
    if (coefficient != 0 && !expected.contains(power))
      return false;
  return llvm::all_of(expected, [&](auto &entry) {
    auto it = p.find(entry.first);
    return it != p.end() && std::abs(it->second / entry.second - 1) < 1e-3;
  });
}

// Every value of the expression that could be x: nearest to the function first.
static void candidates(Value v, llvm::SetVector<Value> &found, int depth = 0) {
  if (numberOf(v) || depth > 5)
    return;
  found.insert(v);
  if (Operation *op = v.getDefiningOp();
      op && isa<arith::AddFOp, arith::MulFOp, arith::DivFOp, math::PowFOp>(op))
    for (Value operand : op->getOperands())
      candidates(operand, found, depth + 1);
}

bool mpc::raiseGelu(Operation *function) {
  bool byTanh = isa<math::TanhOp>(function);
  const double c = 0.7978845608028654; // √(2/π)
  const Polynomial argument = byTanh ? Polynomial{{{1, 0}, c}, {{3, 0}, c * 0.044715}}
                                     : Polynomial{{{1, 0}, 0.7071067811865476}};
  const Polynomial gelu{{{1, 0}, 0.5}, {{1, 1}, 0.5}};

  Value u = function->getOperand(0), t = function->getResult(0);
  llvm::SetVector<Value> xs;
  candidates(u, xs);
  for (Value x : xs) {
    Expansion inner{x, {}, {}};
    auto found = inner.of(u);
    if (x == u || !found || !equals(*found, argument))
      continue;
    // Climb from t to the value that is 0.5·x + 0.5·x·t.
    Value root = t;
    for (int step = 0; step < 5 && root.hasOneUse(); ++step) {
      Operation *user = *root.getUsers().begin();
      if (user->getNumResults() != 1 || !isa<arith::AddFOp, arith::MulFOp, arith::DivFOp>(user))
        break;
      root = user->getResult(0);
      Expansion outer{x, t, {}};
      auto whole = outer.of(root);
      if (!whole)
        break;
      if (!equals(*whole, gelu))
        continue;
      llvm::SetVector<Operation *> inside = inner.inside;
      inside.insert(outer.inside.begin(), outer.inside.end());
      inside.insert(function);
      bool closed = llvm::all_of(inside, [&](Operation *op) {
        return op == user || llvm::all_of(op->getUsers(),
                                          [&](Operation *other) { return inside.contains(other); });
      });
      if (!closed)
        return false;
      OpBuilder b(user);
      auto op = GeluOp::create(b, user->getLoc(), root.getType(), x,
                               byTanh ? b.getUnitAttr() : UnitAttr());
      if (!nodeOf(user).empty())
        op->setDiscardableAttr(MpcDialect::kNodeAttr, b.getStringAttr(nodeOf(user)));
      op->setDiscardableAttr(MpcDialect::kOpAttr, b.getStringAttr("Gelu"));
      root.replaceAllUsesWith(op.getResult());
      return true;
    }
  }
  return false;
}

//===- Einsum.cpp - Einstein sums as products ----------------------------------------===//
//
// Einsum becomes diagonals, sums and matrix products: labels of both operands that the rest
// needs are batch dimensions, those that it does not are contracted. More than two operands are
// multiplied from left to right.
//
//   "bqhd,bkhd->bhqk"   batch b, h; contracted d   →   [b, h, q, d] · [b, h, d, k]
//
//===------------------------------------------------------------------------------===//

#include "compiler/ops/Build.h"
#include "compiler/ops/OnnxConversion.h"
#include <map>

using namespace mlir;
using namespace mpc;

namespace {
/// A letter, or kEllipsis + k for the dimension k places before the ellipsis' last.
using Label = int64_t;
using Labels = SmallVector<Label>;
constexpr Label kEllipsis = 1000;

/// A value whose dimensions have these labels, all different.
struct Term {
  Value value;
  Labels labels;
  bool has(Label label) const { return llvm::is_contained(labels, label); }
  int64_t size(Label label) const {
    return shapeOf(value)[llvm::find(labels, label) - labels.begin()];
  }
};

class Einsum {
public:
  explicit Einsum(NodeContext &node) : node(node), b(node.b), loc(node.loc) {}
  LogicalResult convert();

private:
  std::optional<Labels> parse(StringRef text, int64_t ellipsisRank);
  bool readOperand(unsigned i, StringRef text);
  bool readOutput(StringRef equation, size_t arrow);
  Term permuted(const Term &term, const Labels &order);
  Term diagonal(Term term);
  Term summed(const Term &term, function_ref<bool(Label)> keep);
  Term product(const Term &x, const Term &y, function_ref<bool(Label)> keep);

  NodeContext &node;
  OpBuilder &b;
  Location loc;
  SmallVector<Term> terms;
  Labels output;
  std::map<Label, int64_t> sizes, uses;
};
} // namespace

// "ab...c": the labels of a term whose ellipsis stands for `ellipsisRank` dimensions.
std::optional<Labels> Einsum::parse(StringRef text, int64_t ellipsisRank) {
  Labels labels;
  bool seen = false;
  while (!text.empty()) {
    if (text.consume_front("...")) {
      if (seen)
        return std::nullopt;
      seen = true;
      for (int64_t k = ellipsisRank - 1; k >= 0; --k)
        labels.push_back(kEllipsis + k);
    } else if (llvm::isAlpha(text.front())) {
      labels.push_back(text.front());
      text = text.drop_front();
    } else {
      return std::nullopt;
    }
  }
  return labels;
}

bool Einsum::readOperand(unsigned i, StringRef text) {
  Value v = node.operand(i);
  if (!v)
    return false;
  int64_t rank = shapeOf(v).size();
  bool ellipsis = text.contains("...");
  int64_t letters = text.size() - (ellipsis ? 3 : 0);
  std::optional<Labels> labels = parse(text, std::max<int64_t>(rank - letters, 0));
  if (!labels || static_cast<int64_t>(labels->size()) != rank || !isa<FloatType>(elementType(v))) {
    node.error() << "the term \"" << text << "\" does not fit operand " << i << " of type "
                 << v.getType();
    return false;
  }
  std::map<Label, int64_t> own;
  for (auto [label, size] : llvm::zip_equal(*labels, shapeOf(v))) {
    // A 1 is stretched to the other operands' size, not to that of another dimension of its own.
    int64_t &known = sizes.try_emplace(label, 1).first->second,
            inside = own.try_emplace(label, size).first->second;
    int64_t other = size != inside ? inside : known;
    if (size != inside || (known != 1 && size != 1 && size != known)) {
      node.error() << "dimensions of " << other << " and " << size << " have the same label";
      return false;
    }
    known = known == 1 ? size : known;
    ++uses[label];
  }
  terms.push_back(diagonal({v, *labels}));
  return true;
}

// Without "->": the ellipsis, then all labels that come once, by the alphabet.
bool Einsum::readOutput(StringRef equation, size_t arrow) {
  int64_t ellipsisRank = 0;
  for (auto [label, size] : sizes)
    ellipsisRank = std::max(ellipsisRank, label - kEllipsis + 1);
  if (arrow == StringRef::npos) {
    for (int64_t k = ellipsisRank - 1; k >= 0; --k)
      output.push_back(kEllipsis + k);
    for (auto [label, count] : uses)
      if (label < kEllipsis && count == 1)
        output.push_back(label);
    return true;
  }
  std::optional<Labels> labels = parse(equation.substr(arrow + 2), ellipsisRank);
  bool good = labels && llvm::all_of(*labels, [&](Label label) {
                return sizes.count(label) && llvm::count(*labels, label) == 1;
              });
  if (!good) {
    node.error() << "the output \"" << equation.substr(arrow + 2)
                 << "\" of the equation is not made of the operands' labels";
    return false;
  }
  output = *labels;
  return true;
}

Term Einsum::permuted(const Term &term, const Labels &order) {
  SmallVector<int64_t> permutation;
  for (Label label : order)
    permutation.push_back(llvm::find(term.labels, label) - term.labels.begin());
  return {transpose(b, loc, term.value, permutation), order};
}

// A label that comes twice is a diagonal: every (n+1)-th element of the two dimensions as one.
Term Einsum::diagonal(Term term) {
  for (size_t i = 0; i < term.labels.size(); ++i)
    for (size_t j = i + 1; j < term.labels.size(); ++j) {
      if (term.labels[i] != term.labels[j])
        continue;
      int64_t n = shapeOf(term.value)[i], rank = term.labels.size();
      SmallVector<int64_t> permutation;
      for (int64_t d = 0; d < rank; ++d)
        if (d != static_cast<int64_t>(i) && d != static_cast<int64_t>(j))
          permutation.push_back(d);
      Labels labels;
      for (int64_t d : permutation)
        labels.push_back(term.labels[d]);
      labels.push_back(term.labels[i]);
      permutation.append({static_cast<int64_t>(i), static_cast<int64_t>(j)});
      Value v = transpose(b, loc, term.value, permutation);
      SmallVector<int64_t> shape(shapeOf(v).drop_back(2)), starts(rank - 1, 0), steps(rank - 1, 1);
      shape.push_back(n * n);
      v = reshape(b, loc, v, shape);
      shape.back() = n;
      steps.back() = n + 1;
      return diagonal({slice(b, loc, v, starts, steps, shape), labels});
    }
  return term;
}

Term Einsum::summed(const Term &term, function_ref<bool(Label)> keep) {
  SmallVector<int64_t> axes;
  Labels labels;
  for (auto [d, label] : llvm::enumerate(term.labels)) {
    if (keep(label))
      labels.push_back(label);
    else
      axes.push_back(d);
  }
  return {reduce(b, loc, ReductionKind::sum, term.value, axes), labels};
}

// [batch, M, K] · [batch, K, N], each of M, K, N all labels of one kind as one dimension; without K
// an elementwise product.
Term Einsum::product(const Term &left, const Term &right, function_ref<bool(Label)> keep) {
  Term x = summed(left, [&](Label label) { return keep(label) || right.has(label); });
  Term y = summed(right, [&](Label label) { return keep(label) || left.has(label); });
  Labels batch, contracted, rows, columns;
  for (Label label : x.labels)
    (!y.has(label) ? rows : keep(label) ? batch : contracted).push_back(label);
  for (Label label : y.labels)
    if (!x.has(label))
      columns.push_back(label);
  SmallVector<int64_t> shape, xShape, yShape;
  int64_t m = 1, k = 1, n = 1;
  for (Label label : batch)
    shape.push_back(x.size(label));
  for (Label label : rows)
    shape.push_back(x.size(label)), m *= x.size(label);
  for (Label label : columns)
    shape.push_back(y.size(label)), n *= y.size(label);
  for (Label label : contracted)
    k *= x.size(label);

  auto joined = [](ArrayRef<Label> a, ArrayRef<Label> b, ArrayRef<Label> c) {
    Labels all(a);
    llvm::append_range(all, b);
    llvm::append_range(all, c);
    return all;
  };
  Labels result = joined(batch, rows, columns);
  if (contracted.empty()) {
    auto spread = [&](const Term &term) {
      SmallVector<int64_t> dimensions;
      Labels order =
          llvm::filter_to_vector<8>(result, [&](Label label) { return term.has(label); });
      for (Label label : order)
        dimensions.push_back(llvm::find(result, label) - result.begin());
      return broadcast(b, loc, permuted(term, order).value, dimensions, shape);
    };
    return {mul(b, loc, spread(x), spread(y)), result};
  }
  SmallVector<int64_t> batchShape(ArrayRef<int64_t>(shape).take_front(batch.size()));
  auto matrix = [&](const Term &term, const Labels &order, int64_t height, int64_t width) {
    SmallVector<int64_t> matrixShape(batchShape);
    matrixShape.append({height, width});
    return reshape(b, loc, permuted(term, order).value, matrixShape);
  };
  Value lhs = matrix(x, joined(batch, rows, contracted), m, k),
        rhs = matrix(y, joined(batch, contracted, columns), k, n);
  SmallVector<int64_t> resultShape(batchShape);
  resultShape.append({m, n});
  auto type = RankedTensorType::get(resultShape, elementType(x.value));
  Value z = MatmulOp::create(b, loc, type, lhs, rhs, Value(), /*transpose_lhs=*/false,
                             /*transpose_rhs=*/false, /*relu=*/false);
  return {reshape(b, loc, z, shape), result};
}

LogicalResult Einsum::convert() {
  std::string equation = node.stringAttr("equation", "");
  llvm::erase(equation, ' ');
  size_t arrow = StringRef(equation).find("->");
  SmallVector<StringRef> texts;
  StringRef(equation).take_front(std::min(arrow, equation.size())).split(texts, ',');
  if (texts.size() != node.operandCount())
    return node.error() << "the equation \"" << equation << "\" has " << texts.size()
                        << " terms for " << node.operandCount() << " operands";
  for (unsigned i = 0; i < texts.size(); ++i)
    if (!readOperand(i, texts[i]))
      return failure();
  if (!readOutput(equation, arrow))
    return failure();

  // A dimension of size 1 that is stretched by another operand's of the same label takes no part.
  for (Term &term : terms) {
    if (elementType(term.value) != elementType(terms[0].value))
      return node.error() << "has operands of different types";
    Labels labels;
    SmallVector<int64_t> shape;
    for (Label label : term.labels)
      if (term.size(label) == sizes[label]) {
        labels.push_back(label);
        shape.push_back(sizes[label]);
      }
    term = {reshape(b, loc, term.value, shape), labels};
  }
  Term result = terms[0];
  for (size_t i = 1; i < terms.size(); ++i)
    result = product(result, terms[i], [&](Label label) {
      return llvm::is_contained(output, label) ||
             llvm::any_of(ArrayRef<Term>(terms).drop_front(i + 1),
                          [&](const Term &t) { return t.has(label); });
    });
  result = summed(result, [&](Label label) { return llvm::is_contained(output, label); });
  return node.results({permuted(result, output).value});
}

namespace mpc {
void registerEinsumHandlers(OnnxRegistry &r) {
  r.add("Einsum", {12}, [](NodeContext &node) { return Einsum(node).convert(); });
}
} // namespace mpc

//===- TensorReference.h - a plain evaluator of kernel bodies, for tests ----------------===//
//
// Evaluates a kernel's function operation by operation on dense tensors of doubles, written
// from the operations' descriptions and sharing no code with the compiler: slow, and easy
// to check by eye. Halves and f32 are rounded where the operation says so.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_TEST_UNIT_TENSORREFERENCE_H
#define MPC_TEST_UNIT_TENSORREFERENCE_H

#include "MpcDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/DenseMap.h"
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace mpc::test {

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<double> data;
  int64_t size() const {
    int64_t n = 1;
    for (int64_t d : shape)
      n *= d;
    return n;
  }
};

inline double roundTo(double value, mlir::Type type) {
  auto floating = mlir::dyn_cast<mlir::FloatType>(type);
  if (!floating || type.isF64())
    return value;
  llvm::APFloat number(value);
  bool lost;
  number.convert(floating.getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven, &lost);
  number.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lost);
  return number.convertToDouble();
}

inline void philox(uint32_t c[4], uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    uint64_t a = uint64_t(0xD2511F53u) * c[0], b = uint64_t(0xCD9E8D57u) * c[2];
    uint32_t next[4] = {uint32_t(b >> 32) ^ c[1] ^ k0, uint32_t(b), uint32_t(a >> 32) ^ c[3] ^ k1,
                        uint32_t(a)};
    std::copy(next, next + 4, c);
  }
}

/// Element `index` of mpc.random_uniform.
inline double randomUniform(const Tensor &state, uint64_t operatorId, uint64_t seed,
                            int64_t index) {
  uint64_t run = int64_t(state.data[0]), micro = int64_t(state.data[1]), block = index / 4;
  uint32_t counter[4] = {uint32_t(block), uint32_t(block >> 32), uint32_t(micro),
                         uint32_t(micro >> 32)};
  philox(counter, uint32_t(run) ^ uint32_t(seed), uint32_t(operatorId));
  return double(counter[index % 4] >> 8) * 0x1p-24;
}

class Reference {
  using Index = std::vector<int64_t>;
  llvm::DenseMap<mlir::Value, Tensor> values;

  static Index unravel(int64_t linear, const std::vector<int64_t> &shape) {
    Index index(shape.size());
    for (size_t d = shape.size(); d-- > 0; linear /= shape[d])
      index[d] = linear % shape[d];
    return index;
  }
  static int64_t ravel(const Index &index, const std::vector<int64_t> &shape) {
    int64_t linear = 0;
    for (size_t d = 0; d < shape.size(); ++d)
      linear = linear * shape[d] + index[d];
    return linear;
  }
  /// A number as the element type of `like` holds it: places in a window are bits without a sign.
  static double signExtended(double number, mlir::Value like) {
    unsigned width = mlir::getElementTypeOrSelf(like.getType()).getIntOrFloatBitWidth();
    return double(llvm::SignExtend64(uint64_t(int64_t(number)), width));
  }
  static double reduceStep(ReductionKind kind, double a, double b) {
    switch (kind) {
    case ReductionKind::sum:
      return a + b;
    case ReductionKind::product:
      return a * b;
    case ReductionKind::max:
      return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b);
    case ReductionKind::min:
      return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b);
    }
    return 0;
  }
  static bool compare(mlir::arith::CmpFPredicate predicate, double a, double b) {
    using P = mlir::arith::CmpFPredicate;
    bool unordered = std::isnan(a) || std::isnan(b);
    switch (predicate) {
    case P::OEQ:
      return a == b;
    case P::OGT:
      return a > b;
    case P::OGE:
      return a >= b;
    case P::OLT:
      return a < b;
    case P::OLE:
      return a <= b;
    case P::ONE:
      return !unordered && a != b;
    case P::UNE:
      return a != b;
    case P::UNO:
      return unordered;
    case P::ORD:
      return !unordered;
    case P::UEQ:
      return unordered || a == b;
    case P::UGT:
      return !(a <= b);
    case P::UGE:
      return !(a < b);
    case P::ULT:
      return !(a >= b);
    case P::ULE:
      return !(a > b);
    case P::AlwaysTrue:
      return true;
    case P::AlwaysFalse:
      return false;
    }
    return false;
  }
  static bool compare(mlir::arith::CmpIPredicate predicate, int64_t a, int64_t b) {
    using P = mlir::arith::CmpIPredicate;
    switch (predicate) {
    case P::eq:
      return a == b;
    case P::ne:
      return a != b;
    case P::slt:
      return a < b;
    case P::sle:
      return a <= b;
    case P::sgt:
      return a > b;
    case P::sge:
      return a >= b;
    case P::ult:
      return uint64_t(a) < uint64_t(b);
    case P::ule:
      return uint64_t(a) <= uint64_t(b);
    case P::ugt:
      return uint64_t(a) > uint64_t(b);
    case P::uge:
      return uint64_t(a) >= uint64_t(b);
    }
    return false;
  }

  double scalar(mlir::Operation *op, llvm::ArrayRef<double> x) {
    using namespace mlir;
    Type type = getElementTypeOrSelf(op->getResult(0).getType());
    llvm::StringRef name = op->getName().getStringRef();
    auto is = [&](llvm::StringRef n) { return name == n; };
    double y;
    if (is("arith.addf") || is("arith.addi"))
      y = x[0] + x[1];
    else if (is("arith.subf") || is("arith.subi"))
      y = x[0] - x[1];
    else if (is("arith.mulf") || is("arith.muli"))
      y = x[0] * x[1];
    else if (is("math.fma"))
      y = x[0] * x[1] + x[2];
    else if (is("arith.divf"))
      y = x[0] / x[1];
    else if (is("arith.negf"))
      y = -x[0];
    else if (is("arith.maximumf"))
      y = reduceStep(ReductionKind::max, x[0], x[1]);
    else if (is("arith.minimumf"))
      y = reduceStep(ReductionKind::min, x[0], x[1]);
    else if (is("arith.andi"))
      y = double(int64_t(x[0]) & int64_t(x[1]));
    else if (is("arith.ori"))
      y = double(int64_t(x[0]) | int64_t(x[1]));
    else if (is("arith.select"))
      y = x[0] != 0 ? x[1] : x[2];
    else if (is("arith.fptosi"))
      y = std::trunc(x[0]);
    else if (is("arith.extf") || is("arith.truncf") || is("arith.sitofp") || is("arith.uitofp") ||
             is("arith.extsi") || is("arith.extui") || is("arith.trunci"))
      y = x[0];
    else if (auto cmp = dyn_cast<arith::CmpFOp>(op))
      y = compare(cmp.getPredicate(), x[0], x[1]);
    else if (auto cmp = dyn_cast<arith::CmpIOp>(op))
      y = compare(cmp.getPredicate(), int64_t(x[0]), int64_t(x[1]));
    else if (is("math.exp"))
      y = std::exp(x[0]);
    else if (is("math.expm1"))
      y = std::expm1(x[0]);
    else if (is("math.log"))
      y = std::log(x[0]);
    else if (is("math.log1p"))
      y = std::log1p(x[0]);
    else if (is("math.tanh"))
      y = std::tanh(x[0]);
    else if (is("math.erf"))
      y = std::erf(x[0]);
    else if (is("math.sqrt"))
      y = std::sqrt(x[0]);
    else if (is("math.rsqrt"))
      y = 1 / std::sqrt(x[0]);
    else if (is("math.absf"))
      y = std::abs(x[0]);
    else if (is("math.powf"))
      y = std::pow(x[0], x[1]);
    else if (is("math.sin"))
      y = std::sin(x[0]);
    else if (is("math.cos"))
      y = std::cos(x[0]);
    else if (is("math.floor"))
      y = std::floor(x[0]);
    else {
      ADD_FAILURE() << "the reference lacks " << name.str();
      y = NAN;
    }
    return roundTo(y, type);
  }

  static Tensor make(mlir::Value v) {
    auto type = mlir::dyn_cast<mlir::RankedTensorType>(v.getType());
    Tensor t;
    if (type)
      t.shape = type.getShape().vec();
    t.data.resize(t.size());
    return t;
  }

  /// Calls f(output index, cell, input index) for every cell of every window that lies inside the
  /// input.
  template <typename Op, typename Fn>
  static void windows(Op op, const std::vector<int64_t> &input, const std::vector<int64_t> &output,
                      Fn f) {
    size_t spatial = op.getKernel().size(), first = op.getChannelsLast() ? 1 : 2;
    int64_t cells = 1, outputs = 1;
    for (int64_t k : op.getKernel())
      cells *= k;
    for (int64_t d : output)
      outputs *= d;
    for (int64_t o = 0; o < outputs; ++o) {
      Index out = unravel(o, output);
      for (int64_t cell = 0; cell < cells; ++cell) {
        Index place = unravel(cell, op.getKernel().vec()), in = out;
        bool inside = true, inPads = true;
        for (size_t d = 0; d < spatial; ++d) {
          int64_t i = out[first + d] * op.getStrides()[d] + place[d] * op.getDilations()[d] -
                      op.getPads()[d];
          in[first + d] = i;
          inside &= i >= 0 && i < input[first + d];
          inPads &= i < input[first + d] + op.getPads()[spatial + d];
        }
        f(o, cell, inside ? ravel(in, input) : -1, inPads);
      }
    }
  }

  void evaluate(mlir::Operation *op) {
    using namespace mlir;
    auto in = [&](unsigned i) -> const Tensor & { return values.find(op->getOperand(i))->second; };
    Tensor out = make(op->getResult(0));
    Type type = getElementTypeOrSelf(op->getResult(0).getType());
    int64_t n = out.size();
    if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
      auto number = [](Attribute a) {
        return isa<FloatAttr>(a) ? cast<FloatAttr>(a).getValueAsDouble()
                                 : double(cast<IntegerAttr>(a).getValue().getSExtValue());
      };
      auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
      double value = dense ? number(dense.getSplatValue<Attribute>()) : number(constant.getValue());
      if (type.isInteger(1))
        value = value != 0;
      out.data.assign(n, value);
    } else if (isa<ReshapeOp>(op)) {
      out.data = in(0).data;
    } else if (auto b = dyn_cast<BroadcastOp>(op)) {
      for (int64_t i = 0; i < n; ++i) {
        Index at = unravel(i, out.shape), from;
        for (int64_t d : b.getDimensions())
          from.push_back(at[d]);
        out.data[i] = in(0).data[ravel(from, in(0).shape)];
      }
    } else if (auto t = dyn_cast<TransposeOp>(op)) {
      for (int64_t i = 0; i < n; ++i) {
        Index at = unravel(i, out.shape), from(at.size());
        for (size_t d = 0; d < at.size(); ++d)
          from[t.getPermutation()[d]] = at[d];
        out.data[i] = in(0).data[ravel(from, in(0).shape)];
      }
    } else if (auto s = dyn_cast<SliceOp>(op)) {
      for (int64_t i = 0; i < n; ++i) {
        Index at = unravel(i, out.shape);
        for (size_t d = 0; d < at.size(); ++d)
          at[d] = s.getStarts()[d] + at[d] * s.getSteps()[d];
        out.data[i] = in(0).data[ravel(at, in(0).shape)];
      }
    } else if (auto p = dyn_cast<PadOp>(op)) {
      out.data.assign(n, in(1).data[0]);
      for (int64_t i = 0; i < in(0).size(); ++i) {
        Index at = unravel(i, in(0).shape);
        bool inside = true;
        for (size_t d = 0; d < at.size(); ++d) {
          at[d] = p.getLow()[d] + at[d] * (p.getInterior()[d] + 1);
          inside &= at[d] >= 0 && at[d] < out.shape[d];
        }
        if (inside)
          out.data[ravel(at, out.shape)] = in(0).data[i];
      }
    } else if (auto c = dyn_cast<ConcatOp>(op)) {
      int64_t offset = 0;
      for (unsigned k = 0; k < op->getNumOperands(); ++k) {
        for (int64_t i = 0; i < in(k).size(); ++i) {
          Index at = unravel(i, in(k).shape);
          at[c.getAxis()] += offset;
          out.data[ravel(at, out.shape)] = in(k).data[i];
        }
        offset += in(k).shape[c.getAxis()];
      }
    } else if (auto g = dyn_cast<GatherOp>(op)) {
      int64_t axis = g.getAxis(), rank = in(1).shape.size();
      for (int64_t i = 0; i < n; ++i) {
        Index at = unravel(i, out.shape), which(at.begin() + axis, at.begin() + axis + rank),
              from(at.begin(), at.begin() + axis);
        from.push_back(
            std::clamp<int64_t>(in(1).data[ravel(which, in(1).shape)], 0, in(0).shape[axis] - 1));
        from.insert(from.end(), at.begin() + axis + rank, at.end());
        out.data[i] = in(0).data[ravel(from, in(0).shape)];
      }
    } else if (auto s = dyn_cast<ScatterAddOp>(op)) {
      int64_t axis = s.getAxis(), rank = in(0).shape.size();
      if (s.getInit())
        out.data = in(2).data;
      for (int64_t i = 0; i < in(1).size(); ++i) {
        Index at = unravel(i, in(1).shape), which(at.begin() + axis, at.begin() + axis + rank),
              to(at.begin(), at.begin() + axis);
        to.push_back(
            std::clamp<int64_t>(in(0).data[ravel(which, in(0).shape)], 0, out.shape[axis] - 1));
        to.insert(to.end(), at.begin() + axis + rank, at.end());
        out.data[ravel(to, out.shape)] += in(1).data[i];
      }
    } else if (auto iota = dyn_cast<IotaOp>(op)) {
      for (int64_t i = 0; i < n; ++i)
        out.data[i] = unravel(i, out.shape)[iota.getAxis()];
    } else if (auto r = dyn_cast<RandomUniformOp>(op)) {
      for (int64_t i = 0; i < n; ++i)
        out.data[i] = randomUniform(in(0), r.getOperatorId(), r.getSeed(), i);
    } else if (auto r = dyn_cast<ReduceOp>(op)) {
      double start = r.getKind() == ReductionKind::sum       ? 0
                     : r.getKind() == ReductionKind::product ? 1
                     : r.getKind() == ReductionKind::max     ? -INFINITY
                                                             : INFINITY;
      out.data.assign(n, start);
      for (int64_t i = 0; i < in(0).size(); ++i) {
        Index at = unravel(i, in(0).shape), to;
        for (size_t d = 0; d < at.size(); ++d)
          if (!llvm::is_contained(r.getAxes(), int64_t(d)))
            to.push_back(at[d]);
        double &sum = out.data[ravel(to, out.shape)];
        sum = reduceStep(r.getKind(), sum, in(0).data[i]);
      }
    } else if (auto m = dyn_cast<MaxPoolOp>(op)) {
      Tensor index = make(m.getIndex());
      out.data.assign(n, -INFINITY);
      index.data.assign(n, -1);
      windows(m, in(0).shape, out.shape, [&](int64_t o, int64_t cell, int64_t i, bool) {
        if (i < 0)
          return;
        double x = in(0).data[i];
        if (index.data[o] < 0 || x > out.data[o] || std::isnan(x))
          out.data[o] = x, index.data[o] = cell;
      });
      for (double &place : index.data)
        place = signExtended(place, m.getIndex());
      values[m.getIndex()] = index;
    } else if (auto m = dyn_cast<MaxPoolGradOp>(op)) {
      windows(m, out.shape, in(0).shape, [&](int64_t o, int64_t cell, int64_t i, bool) {
        if (i >= 0 && signExtended(in(1).data[o], m.getIndex()) == signExtended(cell, m.getIndex()))
          out.data[i] += in(0).data[o];
      });
    } else if (auto a = dyn_cast<AveragePoolOp>(op)) {
      std::vector<double> count(n);
      windows(a, in(0).shape, out.shape, [&](int64_t o, int64_t, int64_t i, bool inPads) {
        out.data[o] += i >= 0 ? in(0).data[i] : 0;
        count[o] += a.getCountIncludePad() ? inPads : i >= 0;
      });
      for (int64_t o = 0; o < n; ++o)
        out.data[o] /= count[o];
    } else if (auto a = dyn_cast<AveragePoolGradOp>(op)) {
      std::vector<double> count(in(0).size());
      windows(a, out.shape, in(0).shape, [&](int64_t o, int64_t, int64_t i, bool inPads) {
        count[o] += a.getCountIncludePad() ? inPads : i >= 0;
      });
      windows(a, out.shape, in(0).shape, [&](int64_t o, int64_t, int64_t i, bool) {
        if (i >= 0)
          out.data[i] += in(0).data[o] / count[o];
      });
    } else {
      for (int64_t i = 0; i < n; ++i) {
        llvm::SmallVector<double> x;
        for (unsigned k = 0; k < op->getNumOperands(); ++k)
          x.push_back(in(k).data[in(k).data.size() == 1 ? 0 : i]);
        out.data[i] = scalar(op, x);
      }
    }
    for (double &x : out.data)
      x = roundTo(x, type);
    values[op->getResult(0)] = std::move(out);
  }

public:
  std::vector<Tensor> run(mlir::func::FuncOp function, const std::vector<Tensor> &arguments) {
    for (auto [i, argument] : llvm::enumerate(function.getArguments()))
      values[argument] = arguments[i];
    std::vector<Tensor> results;
    for (mlir::Operation &op : function.front()) {
      if (!mlir::isa<mlir::func::ReturnOp>(op)) {
        evaluate(&op);
        continue;
      }
      for (mlir::Value result : op.getOperands())
        results.push_back(values[result]);
    }
    return results;
  }
};

} // namespace mpc::test

#endif // MPC_TEST_UNIT_TENSORREFERENCE_H

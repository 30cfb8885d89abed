//===- Affine.h - index expressions of generated loops ---------------------------===//
//
// The element of a tensor that a loop body reads is named by its row-major linear index,
// an expression Σ coefficient · base + constant over loop variables and over quotients and
// remainders of them. A reshape does not change it; other views take it apart into
// dimensions and put it together again. Because every base has a known range, most of the
// divisions that this needs are exact and cost nothing: (r · 64 + k) / 64 is r where
// 0 ≤ k < 64. What remains is a sum that LLVM sees as contiguous in the innermost loop.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_CODEGEN_AFFINE_H
#define MPC_CODEGEN_AFFINE_H

#include "mlir/IR/Value.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>
#include <map>
#include <utility>

namespace mpc {

/// Σ coefficient · base + constant; terms are sorted by base and have no zero coefficient.
struct Affine {
  llvm::SmallVector<std::pair<unsigned, int64_t>, 2> terms;
  int64_t constant = 0;

  Affine() = default;
  Affine(int64_t constant) : constant(constant) {}
  bool isConstant() const { return terms.empty(); }
  bool operator==(const Affine &other) const {
    return constant == other.constant && terms == other.terms;
  }
  bool operator<(const Affine &other) const {
    return constant != other.constant ? constant < other.constant : terms < other.terms;
  }
  Affine operator+(const Affine &other) const;
  Affine operator*(int64_t factor) const;
  Affine operator-(const Affine &other) const { return *this + other * -1; }
};

/// The bases of the index expressions of one kernel. The base class knows ranges only, which is
/// enough to analyze a kernel; the emitter derives from it and gives every base a value.
class IndexSpace {
public:
  virtual ~IndexSpace() = default;

  struct Base {
    int64_t min, max; ///< inclusive
    unsigned depth;   ///< the scope that defines it: 0 is the function
    int64_t unit; ///< elements of the iteration space per step of it; 0: not a plain part of a loop
                  ///< variable
    mlir::Value value; ///< i64; null while analyzing
  };

  Affine addBase(int64_t min, int64_t max, unsigned depth, int64_t unit = 0,
                 mlir::Value value = {});
  const Base &base(unsigned id) const { return bases[id]; }
  /// Smallest and largest value, inclusive.
  std::pair<int64_t, int64_t> range(const Affine &index) const;
  bool within(const Affine &index, int64_t low, int64_t high) const; ///< low ≤ index < high always
  unsigned depth(const Affine &index) const;

  /// Floor quotient and remainder by a positive constant.
  std::pair<Affine, Affine> divide(const Affine &index, int64_t divisor);
  /// The indices per dimension of a row-major linear index, and back.
  llvm::SmallVector<Affine> split(const Affine &linear, llvm::ArrayRef<int64_t> shape);
  static Affine join(llvm::ArrayRef<Affine> indices, llvm::ArrayRef<int64_t> shape);

protected:
  /// Called for a division that is not exact: the values of index / divisor and index % divisor,
  /// for index ≥ 0.
  virtual std::pair<mlir::Value, mlir::Value> divideValues(const Affine &index, int64_t divisor);

private:
  llvm::SmallVector<Base> bases;
  std::map<std::pair<Affine, int64_t>, std::pair<Affine, Affine>> divisions;
};

} // namespace mpc

#endif // MPC_CODEGEN_AFFINE_H

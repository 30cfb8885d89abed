//===- Shuffle.h - the order of samples ------------------------------------------------===//
//
// A generator of our own, so that a seed means the same order on every machine, and an order
// that is a function of seed and epoch alone, so that a resumed run needs no generator state.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_DATA_SHUFFLE_H
#define MPC_RUNTIME_DATA_SHUFFLE_H

#include <cstdint>
#include <vector>

namespace mpc {

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
class Generator {
public:
  explicit Generator(uint64_t seed) : state(seed) {}
  /// A stream of its own per key: the seed, and what it is for.
  Generator(uint64_t seed, uint64_t key) : state(seed) {
    state = next() ^ key;
    state = next();
  }
  Generator(uint64_t seed, uint64_t key1, uint64_t key2) : Generator(seed, key1) {
    state ^= key2;
    state = next();
  }

  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  /// Uniform in [0, bound), bound > 0, without bias (Lemire: Fast random integer generation in an
  /// interval, 2019).
  uint64_t below(uint64_t bound);

private:
  uint64_t state;
};

/// The order of epoch `epoch` (from 0): a permutation of 0 … order.size()-1 by Fisher and Yates'
/// method, or that order itself.
void epochOrder(uint64_t seed, uint64_t epoch, bool shuffle, std::vector<int64_t> &order);

} // namespace mpc

#endif // MPC_RUNTIME_DATA_SHUFFLE_H

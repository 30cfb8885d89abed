//===- Shuffle.cpp - the order of samples -----------------------------------------------===//

#include "runtime/data/Shuffle.h"
#include <cstddef>
#include <numeric>
#include <utility>

using namespace mpc;

uint64_t Generator::below(uint64_t bound) {
  // The high half of next()·bound is uniform but for the low halves under 2^64 mod bound.
  uint64_t threshold = (0 - bound) % bound;
  while (true) {
    unsigned __int128 product = static_cast<unsigned __int128>(next()) * bound;
    if (static_cast<uint64_t>(product) >= threshold)
      return static_cast<uint64_t>(product >> 64);
  }
}

void mpc::epochOrder(uint64_t seed, uint64_t epoch, bool shuffle, std::vector<int64_t> &order) {
  std::iota(order.begin(), order.end(), int64_t(0));
  if (!shuffle)
    return;
  Generator generator(seed, epoch);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[generator.below(i)]);
}

//===- Threads.h - work split over libgomp's threads ------------------------------===//

#ifndef MPC_RUNTIME_CPU_THREADS_H
#define MPC_RUNTIME_CPU_THREADS_H

#include <algorithm>
#include <cstdint>
#include <omp.h>

namespace mpc::cpu {

/// CPUs that this process may use: its affinity mask, and the limit of its control group where there is one. At least 1.
int usableCpus();

/// body(begin, end) for ranges that cover [0, extent), on the calling thread alone where there is too little work for two.
template <typename Body>
void parallelRanges(int64_t extent, int64_t grain, int threads, const Body &body) {
  int64_t parts = std::min<int64_t>(threads, (extent + grain - 1) / grain);
  if (parts <= 1) {
    if (extent > 0)
      body(int64_t(0), extent);
    return;
  }
#pragma omp parallel num_threads(static_cast <int>(parts))
  {
    // The team can be smaller than asked for.
    int64_t team = omp_get_num_threads(), part = omp_get_thread_num();
    int64_t begin = extent * part / team, end = extent * (part + 1) / team;
    if (begin < end)
      body(begin, end);
  }
}

} // namespace mpc::cpu

#endif // MPC_RUNTIME_CPU_THREADS_H

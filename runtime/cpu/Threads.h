//===- Threads.h - work split over libgomp's threads ------------------------------===//

#ifndef MPC_RUNTIME_CPU_THREADS_H
#define MPC_RUNTIME_CPU_THREADS_H

#include <algorithm>
#include <cstdint>
#include <omp.h>

namespace mpc::cpu {

/// CPUs that this process may use: its affinity mask, and the limit of its control group where
/// there is one. At least 1.
int usableCpus();

/// libgomp's threads wait awake for milliseconds, which nobody notices on an idle machine; where
/// other programs need its cores, a step takes many times as long. How long they do is read from
/// the environment when the library is loaded: unless the user has set it, the program starts
/// itself again with less. To be called first of all.
void restartWithShortWaits(char **argv);

/// body(begin, end) for ranges that cover [0, extent), on the calling thread alone where there is
/// too little work for two.
template <typename Body>
void parallelRanges(int64_t extent, int64_t grain, int threads, const Body &body) {
  int64_t parts = std::min<int64_t>(threads, (extent + grain - 1) / grain);
  if (parts <= 1) {
    if (extent > 0)
      body(int64_t(0), extent);
    return;
  }
  // Always the whole team, though some may have nothing to do: libgomp ends threads that a smaller
  // team leaves over, and starting them again takes longer than most commands.
#pragma omp parallel num_threads(threads)
  {
    // The team can be smaller than asked for.
    int64_t team = std::min<int64_t>(omp_get_num_threads(), parts), part = omp_get_thread_num();
    int64_t begin = extent * part / team, end = extent * (part + 1) / team;
    if (part < team && begin < end)
      body(begin, end);
  }
}

} // namespace mpc::cpu

#endif // MPC_RUNTIME_CPU_THREADS_H

//===- Threads.cpp - how many threads, and how long they wait awake ---------------===//

#include "runtime/cpu/Threads.h"
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sched.h>
#include <string>
#include <sys/auxv.h>
#include <unistd.h>

using namespace mpc::cpu;

int mpc::cpu::usableCpus() {
  cpu_set_t set;
  int count = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    count = std::max(1, CPU_COUNT(&set));
  // "quota period", in microseconds, or "max …".
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota, period;
  if (file >> quota >> period && quota > 0 && period > 0)
    count = std::min(count, std::max(1, int(std::ceil(quota / period))));
  return count;
}

void mpc::cpu::restartWithShortWaits(char **argv) {
  // About 50 µs on current CPUs: longer than the gap between two commands, and than two threads'
  // shares differ.
  constexpr const char *kSpins = "5000";
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY") || usableCpus() == 1)
    return;
  // From the kernel and not from /proc, which a chroot may lack. Where the loader was started with
  // this program as its argument, AT_EXECFN is the loader's path, and AT_BASE is 0.
  auto *self = reinterpret_cast<const char *>(getauxval(AT_EXECFN));
  if (!self || getauxval(AT_BASE) == 0 || setenv("GOMP_SPINCOUNT", kSpins, 0) != 0)
    return;
  execv(self, argv); // returns only if it fails: then threads wait as long as libgomp thinks right
}

//===- Races.h - work that nothing orders and that touches the same bytes -----------------===//
//
// A lane is a stream or a branch of a graph: what it does is ordered. A clock says, for each lane,
// how much of it is done before something begins; events, and the host where it waits, join
// clocks. Work that touches a byte must come after the work that wrote it, and if it
// writes, after all work that read it since.
//
//===--------------------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_SIM_DRIVER_RACES_H
#define MPC_RUNTIME_SIM_DRIVER_RACES_H

#include "runtime/sim/Executor.h"
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace mpc::sim {

/// By lane, from 1 on: the time up to which its work is done. Lanes that are missing are at 0.
using Clock = std::vector<uint64_t>;

uint64_t at(const Clock &clock, uint32_t lane);
/// The lane's next time.
void advance(Clock &clock, uint32_t lane);
/// What is done after both.
void join(Clock &clock, const Clock &other);
/// What is done in both.
void meet(Clock &clock, const Clock &other);

class RaceLog {
public:
  /// Notes what the work `what` touches ("kernel k3 in stream 1"), which is the last of `lane` in
  /// `clock`. Empty, or which work it races with.
  std::string note(const std::string &what, uint32_t lane, const Clock &clock,
                   const std::vector<Touched> &accesses);
  /// Forgets what is done before all work to come.
  void forget(const Clock &done);

private:
  struct Touch {
    uint32_t lane = 0;
    uint64_t time = 0;
    std::shared_ptr<const std::string> what;
  };
  struct Segment {
    uintptr_t end = 0;
    std::optional<Touch> write;
    std::vector<Touch> reads; ///< since the write, one per lane
  };

  void split(uintptr_t address);
  static const Touch *conflict(const Segment &segment, bool isWritten, const Clock &clock);

  std::map<uintptr_t, Segment> segments; ///< by their begin
};

} // namespace mpc::sim

#endif // MPC_RUNTIME_SIM_DRIVER_RACES_H

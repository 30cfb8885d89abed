//===- Races.cpp - work that nothing orders and that touches the same bytes ---------------===//

#include "runtime/sim/driver/Races.h"
#include <algorithm>
#include <cstdio>

namespace mpc::sim {

uint64_t at(const Clock &clock, uint32_t lane) { return lane < clock.size() ? clock[lane] : 0; }

void advance(Clock &clock, uint32_t lane) {
  if (clock.size() <= lane)
    clock.resize(lane + 1);
  ++clock[lane];
}

void join(Clock &clock, const Clock &other) {
  clock.resize(std::max(clock.size(), other.size()));
  for (size_t lane = 0; lane < other.size(); ++lane)
    clock[lane] = std::max(clock[lane], other[lane]);
}

void meet(Clock &clock, const Clock &other) {
  clock.resize(std::min(clock.size(), other.size()));
  for (size_t lane = 0; lane < clock.size(); ++lane)
    clock[lane] = std::min(clock[lane], other[lane]);
}

/// Makes a segment begin at the address, if one goes over it.
void RaceLog::split(uintptr_t address) {
  auto next = segments.upper_bound(address);
  if (next == segments.begin())
    return;
  auto &[begin, segment] = *std::prev(next);
  if (begin == address || segment.end <= address)
    return;
  segments.emplace_hint(next, address, segment);
  segment.end = address;
}

const RaceLog::Touch *RaceLog::conflict(const Segment &segment, bool isWritten,
                                        const Clock &clock) {
  auto isConcurrent = [&](const Touch &touch) { return touch.time > at(clock, touch.lane); };
  if (segment.write && isConcurrent(*segment.write))
    return &*segment.write;
  if (isWritten)
    for (const Touch &read : segment.reads)
      if (isConcurrent(read))
        return &read;
  return nullptr;
}

std::string RaceLog::note(const std::string &what, uint32_t lane, const Clock &clock,
                          const std::vector<Touched> &accesses) {
  Touch own{lane, at(clock, lane), std::make_shared<const std::string>(what)};
  for (const Touched &access : accesses) {
    split(access.begin);
    split(access.end);
    for (uintptr_t address = access.begin; address < access.end;) {
      auto next = segments.lower_bound(address);
      if (next == segments.end() || next->first != address) {
        uintptr_t end = next == segments.end() ? access.end : std::min(access.end, next->first);
        next = segments.emplace_hint(next, address, Segment{end, std::nullopt, {}});
      }
      Segment &segment = next->second;
      if (const Touch *other = conflict(segment, access.isWritten, clock)) {
        char bytes[80];
        std::snprintf(bytes, sizeof bytes, " touch the %zu bytes at %#zx", segment.end - address,
                      address);
        return *other->what + " and " + what + bytes +
               ", one of them writes, and no event orders them";
      }
      if (access.isWritten) {
        segment.write = own;
        segment.reads.clear();
      } else {
        std::erase_if(segment.reads, [&](const Touch &read) { return read.lane == lane; });
        segment.reads.push_back(own);
      }
      address = segment.end;
    }
  }
  return "";
}

void RaceLog::forget(const Clock &done) {
  auto isDone = [&](const Touch &touch) { return touch.time <= at(done, touch.lane); };
  for (auto next = segments.begin(); next != segments.end();) {
    Segment &segment = next->second;
    if (segment.write && isDone(*segment.write))
      segment.write.reset();
    std::erase_if(segment.reads, isDone);
    next = segment.write || !segment.reads.empty() ? std::next(next) : segments.erase(next);
  }
}

} // namespace mpc::sim

//===- Tuning.cpp - the fastest way to execute a library's command -----------------------===//

#include "runtime/cuda/Tuning.h"
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>

using namespace mpc;
using namespace mpc::cuda;

// Of a measured run: so long that the host is ahead of the GPU, and the events count for nothing.
static constexpr double kMilliseconds = 0.1;
// Work is repeated for that, at most so often.
static constexpr double kMostRepeats = 16;
// Measured runs.
static constexpr size_t kRuns = 3;

using Clock = std::chrono::steady_clock;

static double secondsSince(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

//   issue | begin issue end → repeats | graph of repeats | event graph | event graph | …
//
// A graph, so that the host's calls cost no time between two of the repeats, as in a step. The
// first run makes libraries load their kernels, which they may not do while a graph is recorded.
double cuda::leastTime(const Gpu &gpu, CUstream stream, const std::function<void()> &issue) {
  std::array<Event, kRuns + 1> events;
  for (Event &event : events)
    event = gpu.event(/*isTimed=*/true);
  issue();
  gpu.record(events[0], stream);
  issue();
  gpu.record(events[1], stream);
  gpu.synchronize(events[1]);
  double once = std::max(gpu.milliseconds(events[0], events[1]), kMilliseconds / kMostRepeats);
  auto repeats = static_cast<int>(std::ceil(kMilliseconds / once));
  Graph graph = gpu.capture(stream, [&] {
    for (int i = 0; i < repeats; ++i)
      issue();
  });
  gpu.launch(stream, graph);
  for (size_t run = 0; run < kRuns; ++run) {
    gpu.record(events[run], stream);
    gpu.launch(stream, graph);
  }
  gpu.record(events[kRuns], stream);
  gpu.synchronize(events[kRuns]);
  double least = HUGE_VAL;
  for (size_t run = 0; run < kRuns; ++run)
    least = std::min(least, gpu.milliseconds(events[run], events[run + 1]));
  return least / repeats;
}

//===----------------------------------------------------------------------------===//
// What is known
//===----------------------------------------------------------------------------===//

void Tuning::addTo(TunedChoices &to) const {
  for (const auto &[where, ways] : choices)
    for (const auto &[key, way] : ways)
      to[where][key] = way;
}

TunedFor Tuning::whereOf(const CommandLibrary &library) const {
  return {gpu.name(), gpu.driverVersion(), library.title(), library.version()};
}

/// "12 products, 20 convolutions and 1 attention operation" of Problem::work(); without numbers,
/// "products and convolutions".
static std::string worksText(const std::map<std::string, int64_t> &counts, bool hasNumbers) {
  std::string text;
  size_t left = counts.size();
  for (auto count = counts.rbegin(); count != counts.rend(); ++count, --left) {
    if (!text.empty())
      text += left == 1 ? " and " : ", ";
    if (hasNumbers)
      text += std::to_string(count->second) + " ";
    text += count->first + (hasNumbers && count->second == 1 ? "" : "s");
  }
  return text;
}

/// Says once that what was chosen for such work elsewhere is of no use here.
void Tuning::noteOthers(const CommandLibrary &library,
                        const std::vector<CommandLibrary::Problem *> &added) {
  const TunedFor here = whereOf(library);
  auto isOther = [&](const auto &each) { return each.first.library == here.library; };
  auto other = std::find_if(choices.begin(), choices.end(), isOther);
  if (choices.count(here) || other == choices.end())
    return;
  std::map<std::string, int64_t> works;
  for (const CommandLibrary::Problem *problem : added)
    if (!told.count(problem->work()))
      ++works[problem->work()];
  if (works.empty())
    return;
  for (const auto &[work, count] : works)
    told.insert(work);
  std::string now = isOn ? "they are timed anew"
                         : std::string("each is executed by the first choice of ") +
                               library.title() + " (train --tune times them)";
  std::fprintf(stderr, "note: the %s of this checkpoint were tuned on %s; on %s %s\n",
               worksText(works, /*hasNumbers=*/false).c_str(), other->first.text().c_str(),
               here.text().c_str(), now.c_str());
}

/// Says once that the library no longer offers what was chosen.
void Tuning::noteLost(const CommandLibrary &library, const CommandLibrary::Problem &problem) {
  if (!std::exchange(hasToldLost, true))
    std::fprintf(stderr, "note: %s does not offer what was found fastest for the %s of '%s': %s\n",
                 library.name().c_str(), problem.work(), problem.commands.front()->node.c_str(),
                 isOn ? "it is timed anew" : "its first choice is taken");
}

void Tuning::prepare(CommandLibrary &library, const std::vector<const Command *> &commands) {
  auto began = Clock::now();
  auto ways = choices.find(whereOf(library));
  std::vector<CommandLibrary::Problem *> added =
      library.prepare(commands, ways == choices.end() ? TunedWays() : ways->second, isOn);
  noteOthers(library, added);
  for (CommandLibrary::Problem *problem : added) {
    if (!problem->wanted.empty() && problem->isFound()) {
      ++known[problem->work()];
      continue;
    }
    if (!problem->wanted.empty())
      noteLost(library, *problem);
    if (isOn && !problem->found.empty())
      open.push_back({&library, problem});
  }
  if (isOn)
    seconds += secondsSince(began);
}

//===----------------------------------------------------------------------------===//
// What is timed
//===----------------------------------------------------------------------------===//

/// Problems whose results are all states keep the first way: to execute them now would change what
/// is still to be read.
void Tuning::decide(const Open &each, const std::function<void(const Command &)> &issue) {
  auto [library, problem] = each;
  const std::vector<std::shared_ptr<CommandLibrary::Way>> ways = problem->found;
  auto tried = std::find_if(problem->commands.begin(), problem->commands.end(),
                            [](const Command *command) { return mayBeTried(*command); });
  if (tried == problem->commands.end())
    return library->settle(*problem, ways.front());
  const Command &command = **tried;
  std::shared_ptr<CommandLibrary::Way> best;
  double least = HUGE_VAL;
  auto time = [&](const std::shared_ptr<CommandLibrary::Way> &way) {
    library->choose(command, way);
    double milliseconds = leastTime(gpu, stream, [&] { issue(command); });
    bool isDeclined = way && !library->executes(command);
    if (isDeclined || !(milliseconds < least))
      return;
    least = milliseconds;
    best = way;
  };
  for (const std::shared_ptr<CommandLibrary::Way> &way : ways)
    time(way);
  time(nullptr);
  library->settle(*problem, best);
  choices[whereOf(*library)][problem->key] = best ? best->text : kGenerated;
  ++timed[problem->work()];
  others += best != ways.front();
  generated += !best;
}

void Tuning::time(const std::function<void(const Command &)> &issue) {
  if (open.empty())
    return;
  auto began = Clock::now();
  uint64_t bytes = 0;
  for (const Open &each : open)
    for (const std::shared_ptr<CommandLibrary::Way> &way : each.problem->found)
      bytes = std::max(bytes, way->workspaceBytes);
  DeviceMemory workspace;
  if (bytes > 0)
    workspace = gpu.allocate(bytes, "the workspace that --tune times NVIDIA's libraries with");
  for (const Open &each : open) {
    each.library->use(workspace);
    decide(each, issue);
  }
  open.clear();
  seconds += secondsSince(began);
}

//===----------------------------------------------------------------------------===//
// What is told
//===----------------------------------------------------------------------------===//

std::string Tuning::text() const {
  std::string text;
  if (!timed.empty()) {
    char time[40];
    std::snprintf(time, sizeof time, " in %.1f s: ", seconds);
    text = "tuned " + worksText(timed, /*hasNumbers=*/true) + time + std::to_string(others) +
           " of them not by the first choice";
    if (generated)
      text += ", of these " + std::to_string(generated) + " by generated kernels";
  }
  if (!known.empty())
    text += (text.empty() ? "" : "; ") + worksText(known, /*hasNumbers=*/true) + " as tuned before";
  if (isOn && text.empty())
    text = "tuned nothing: no library executes a product, convolution or attention of this run";
  return text;
}

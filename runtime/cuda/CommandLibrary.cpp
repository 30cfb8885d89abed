//===- CommandLibrary.cpp - a library that executes some of a program's commands ---------===//

#include "runtime/cuda/CommandLibrary.h"
#include "runtime/cuda/Libraries.h"
#include <algorithm>

using namespace mpc;
using namespace mpc::cuda;

const char *cuda::workName(const Command &command) {
  if (isAttention(command.kind))
    return "attention operation";
  return command.kind == CommandKind::matmul ? "product" : "convolution";
}

bool CommandLibrary::Problem::isFound() const {
  return wanted == kGenerated || (!found.empty() && found.front()->text == wanted);
}

std::string CommandLibrary::name() const {
  return std::string(title()) + " " + libraryVersionText(static_cast<size_t>(version()));
}

std::vector<CommandLibrary::Problem *>
CommandLibrary::prepare(const std::vector<const Command *> &commands, const TunedWays &ways,
                        bool all) {
  std::vector<Problem *> added, searched;
  std::vector<std::pair<const Command *, Problem *>> fresh;
  for (const Command *command : commands) {
    if (!asked.insert(command).second)
      continue;
    std::string key = keyOf(*command);
    if (key.empty())
      continue;
    auto [known, isNew] = problems.try_emplace(key);
    Problem &problem = known->second;
    problem.commands.push_back(command);
    fresh.emplace_back(command, &problem);
    if (!isNew)
      continue;
    problem.key = key;
    if (auto way = ways.find(key); way != ways.end())
      problem.wanted = way->second;
    added.push_back(&problem);
    if (problem.wanted != kGenerated)
      searched.push_back(&problem);
  }
  if (!searched.empty())
    find(searched, all);
  for (auto [command, problem] : fresh)
    choose(*command, problem->found.empty() ? nullptr : problem->found.front());
  return added;
}

void CommandLibrary::choose(const Command &command, const std::shared_ptr<Way> &way) {
  if (way)
    chosen[&command] = way;
  else
    chosen.erase(&command);
}

void CommandLibrary::settle(Problem &problem, const std::shared_ptr<Way> &way) {
  problem.found.clear(); // the others' code is of no more use
  if (way)
    problem.found.push_back(way);
  for (const Command *command : problem.commands)
    choose(*command, way);
}

void CommandLibrary::forget() {
  chosen.clear();
  problems.clear();
}

uint64_t CommandLibrary::workspaceBytes() const {
  uint64_t most = 0;
  for (const auto &[command, way] : chosen)
    most = std::max(most, way->workspaceBytes);
  return most;
}

bool CommandLibrary::run(const Command &command, const std::vector<CUdeviceptr> &addresses) {
  auto found = chosen.find(&command);
  if (found == chosen.end())
    return false;
  if (execute(*found->second, command, addresses))
    return true;
  chosen.erase(found);
  return false;
}

//===- Progress.cpp - what a run shows on the console --------------------------------===//

#include "runtime/train/Progress.h"
#include "runtime/train/Checkpoint.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unistd.h>

using namespace mpc;

static double seconds(Progress::Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

std::string mpc::durationText(double time) {
  char text[64];
  long whole = static_cast<long>(time);
  if (time >= 3600)
    snprintf(text, sizeof text, "%ldh %02ldm", whole / 3600, whole / 60 % 60);
  else if (time >= 60)
    snprintf(text, sizeof text, "%ldm %02lds", whole / 60, whole % 60);
  else
    snprintf(text, sizeof text, "%.1fs", time);
  return text;
}

std::string mpc::numberText(double value) {
  char text[64];
  snprintf(text, sizeof text, "%.6g", value);
  return text;
}

Progress::Progress(int64_t logEvery, bool scaled)
    : terminal(isatty(STDOUT_FILENO)), logEvery(logEvery), scaled(scaled), start(Clock::now()),
      nextRedraw(start), lastShown(start) {}

Progress::~Progress() { eraseBar(); }

void Progress::begin(int64_t step) {
  firstStep = step;
  start = lastShown = nextRedraw = Clock::now();
}

void Progress::eraseBar() {
  if (drawn)
    fputs("\r\033[K", stdout);
  drawn = false;
  fflush(stdout);
}

void Progress::show(const Step &s, int64_t samplesSoFar) {
  Clock::time_point now = Clock::now();
  double since = std::max(seconds(now - lastShown), 1e-9);
  double rate = static_cast<double>(samplesSoFar - lastSamples) / since;
  lastShown = now;
  lastSamples = samplesSoFar;
  std::string text = "loss " + numberText(s.loss) + "  lr " + numberText(s.lr);
  if (scaled)
    text += "  scale " + numberText(s.scale);
  if (s.skipped)
    text += std::string("  skipped (") + s.skipped + ")";
  text +=
      "  " +
      (rate < 1000 ? numberText(std::round(rate * 10) / 10) : std::to_string(std::llround(rate))) +
      " samples/s";
  if (!terminal) {
    printf("step %lld/%lld  epoch %lld  %s\n", static_cast<long long>(s.step),
           static_cast<long long>(s.steps), static_cast<long long>(s.epoch), text.c_str());
    fflush(stdout);
    return;
  }
  double done = static_cast<double>(s.step - firstStep);
  double left = seconds(now - start) * static_cast<double>(s.steps - s.step) / std::max(done, 1.0);
  constexpr int kWidth = 24;
  int filled = static_cast<int>(kWidth * s.step / std::max<int64_t>(s.steps, 1));
  std::string bar(static_cast<size_t>(std::min(filled, kWidth)), '#');
  bar.resize(kWidth, '.');
  printf("\r\033[K[%s] %lld/%lld  epoch %lld  %s  %s left", bar.c_str(),
         static_cast<long long>(s.step), static_cast<long long>(s.steps),
         static_cast<long long>(s.epoch), text.c_str(), durationText(left).c_str());
  fflush(stdout);
  drawn = true;
  nextRedraw = now + std::chrono::milliseconds(100);
}

void Progress::warning(const std::string &text) {
  eraseBar();
  warn(text);
}

void Progress::line(const std::string &text) {
  eraseBar();
  printf("%s\n", text.c_str());
  fflush(stdout);
}

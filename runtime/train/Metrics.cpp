//===- Metrics.cpp - a line of JSON per step -----------------------------------------===//

#include "runtime/train/Metrics.h"
#include "runtime/core/Error.h"
#include "runtime/data/File.h"
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <sys/stat.h>

using namespace mpc;

JsonLine::JsonLine(const char *event) { text = std::string("{\"event\":\"") + event + '"'; }

void JsonLine::key(const char *name) {
  text += ",\"";
  text += name;
  text += "\":";
}

JsonLine &JsonLine::add(const char *name, double value) {
  key(name);
  if (!std::isfinite(value)) {
    text += "null";
    return *this;
  }
  char digits[40];
  auto end = std::to_chars(digits, digits + sizeof digits, value);
  text.append(digits, end.ptr);
  return *this;
}

JsonLine &JsonLine::add(const char *name, int64_t value) {
  key(name);
  text += std::to_string(value);
  return *this;
}

JsonLine &JsonLine::add(const char *name, bool value) {
  key(name);
  text += value ? "true" : "false";
  return *this;
}

JsonLine &JsonLine::add(const char *name, const char *word) {
  key(name);
  text += '"';
  text += word;
  text += '"';
  return *this;
}

JsonLine &JsonLine::add(const char *name, const std::string &value) {
  key(name);
  text += nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return *this;
}

const std::string &JsonLine::finish() {
  text += "}\n";
  return text;
}

Metrics::~Metrics() {
  if (file)
    fclose(file);
}

/// Lines behind the step that a run is resumed at belong to work that is done again, and so does
/// that step's evaluation if it is still due.
static bool isKept(std::string_view line, int64_t step, bool evaluates) {
  constexpr size_t kLongest = 1 << 16; // no line of ours, and not worth the memory of reading it
  if (line.size() > kLongest)
    return false;
  try {
    nlohmann::json parsed = nlohmann::json::parse(line);
    int64_t last = evaluates && parsed.at("event") == "eval" ? step - 1 : step;
    return parsed.at("event") != "end" && parsed.at("step").get<int64_t>() <= last;
  } catch (const nlohmann::json::exception &) {
    return false; // the last line of a killed run may be cut off
  }
}

static void keepUntil(const std::string &path, int64_t step, bool evaluates) {
  struct stat facts;
  // A pipe or a terminal keeps nothing, and waits for whoever reads it.
  if (stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_size == 0)
    return;
  MappedFile before(path);
  OutputFile out(path);
  std::string_view rest(reinterpret_cast<const char *>(before.data()), before.size());
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (!isKept(line, step, evaluates))
      continue;
    out.write(line.data(), line.size());
    out.write("\n", 1);
  }
  out.commit();
}

void Metrics::open(const std::string &name, int64_t resumedAt, bool evaluates) {
  path = name;
  if (resumedAt > 0)
    keepUntil(path, resumedAt, evaluates);
  file = fopen(path.c_str(), resumedAt > 0 ? "ae" : "we");
  if (!file)
    throw Error("cannot write " + systemMessage(path, errno));
  setvbuf(file, nullptr, _IOFBF, 1 << 16);
}

void Metrics::check(bool isWritten) {
  if (isWritten)
    return;
  problem = "cannot write " + systemMessage(path, errno);
  if (file)
    fclose(file);
  file = nullptr;
}

void Metrics::write(JsonLine &line) {
  const std::string &text = line.finish();
  if (file)
    check(fwrite(text.data(), 1, text.size(), file) == text.size());
}

void Metrics::flush() {
  if (file)
    check(fflush(file) == 0);
}

void Metrics::close() {
  FILE *closing = file;
  file = nullptr;
  if (closing)
    check(fclose(closing) == 0);
}

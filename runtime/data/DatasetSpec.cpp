//===- DatasetSpec.cpp - what the user writes to name data -----------------------------===//
//
// File and tensor names may hold any character, so the separators can be escaped. The text is
// cut at unescaped separators first, and escapes are removed last, from the finished pieces.
//
//===----------------------------------------------------------------------------===//

#include "runtime/data/DatasetSpec.h"
#include "runtime/core/Error.h"
#include "runtime/data/File.h"
#include <cmath>
#include <cstdlib>

using namespace mpc;

namespace {

/// Cuts at every unescaped `separator`, at most `limit` - 1 times; escapes stay.
std::vector<std::string> split(const std::string &text, char separator, size_t limit = SIZE_MAX) {
  std::vector<std::string> pieces(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == separator && pieces.size() < limit) {
      pieces.emplace_back();
      continue;
    }
    pieces.back() += text[i];
    if (text[i] == '\\' && i + 1 < text.size())
      pieces.back() += text[++i];
  }
  return pieces;
}

std::string unescaped(const std::string &text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size())
      ++i;
    result += text[i];
  }
  return result;
}

[[noreturn]] void refuse(const std::string &text, const std::string &why) {
  throw UsageError("in " + quote(text) + ": " + why);
}

double number(const std::string &option, const std::string &text) {
  char *end = nullptr;
  double value = strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || !std::isfinite(value))
    refuse(option, quote(text) + " is not a number");
  return value;
}

std::vector<double> numbers(const std::string &option, const std::string &text) {
  std::vector<double> values;
  for (const std::string &piece : split(text, ','))
    values.push_back(number(option, piece));
  return values;
}

void parseOption(const std::string &option, Preprocessing &to) {
  std::vector<std::string> parts = split(option, '=', 2);
  const std::string &key = parts[0];
  bool hasValue = parts.size() == 2;
  if (key == "flip" && !hasValue) {
    to.flip = true;
  } else if (key == "scale" && hasValue) {
    to.scale = number(option, parts[1]);
  } else if (key == "mean" && hasValue) {
    to.mean = numbers(option, parts[1]);
  } else if (key == "std" && hasValue) {
    to.std = numbers(option, parts[1]);
    for (double value : to.std)
      if (value <= 0)
        refuse(option, "a standard deviation must be above 0");
  } else if (key == "crop" && hasValue) {
    double value = number(option, parts[1]);
    if (value < 0 || value > 4096 || value != std::floor(value))
      refuse(option, "crop takes the number of pixels around the image, 0 to 4096");
    to.crop = static_cast<int64_t>(value);
  } else {
    refuse(option, "unknown preprocessing; there are scale=F, mean=a,b,c, std=a,b,c, crop=PIXELS "
                   "and flip (a ';' or ',' in a file name is written '\\;' or '\\,')");
  }
}

void parsePreprocessing(const std::vector<std::string> &pieces, Preprocessing &to) {
  for (size_t i = 1; i < pieces.size(); ++i)
    parseOption(pieces[i], to);
}

void addAssignment(const std::string &piece, DatasetSpec &spec) {
  std::vector<std::string> parts = split(piece, '=', 2);
  if (parts.size() < 2 || parts[1].empty())
    refuse(piece, "NAME=FILE is wanted");
  std::string name = unescaped(parts[0]);
  for (const auto &[other, file] : spec.files)
    if (other == name)
      refuse(piece, "a second file for " + quote(name));
  spec.files.emplace_back(std::move(name), unescaped(parts[1]));
}

} // namespace

DatasetSpec mpc::parseDataset(const std::string &text) {
  DatasetSpec spec;
  size_t colon = text.find(':');
  std::string kind = text.substr(0, colon == std::string::npos ? 0 : colon);
  if (kind == "npy")
    spec.kind = DatasetSpec::Kind::npy;
  else if (kind == "idx")
    spec.kind = DatasetSpec::Kind::idx;
  else if (kind == "cifar10")
    spec.kind = DatasetSpec::Kind::cifar10;
  else if (kind == "folder")
    spec.kind = DatasetSpec::Kind::folder;
  else
    refuse(text, "a data set is npy:NAME=FILE,…, idx:IMAGES,LABELS, cifar10:DIR or folder:DIR");

  std::vector<std::string> pieces = split(text.substr(colon + 1), ';');
  parsePreprocessing(pieces, spec.preprocessing);
  if (spec.kind == DatasetSpec::Kind::npy) {
    for (const std::string &piece : split(pieces[0], ','))
      addAssignment(piece, spec);
    return spec;
  }
  std::vector<std::string> files = split(pieces[0], ',');
  size_t wanted = spec.kind == DatasetSpec::Kind::idx ? 2 : 1;
  if (files.size() != wanted || files[0].empty() || files.back().empty())
    refuse(text, wanted == 2 ? "idx: wants two files, IMAGES,LABELS" : kind + ": wants one folder");
  for (size_t i = 0; i < files.size(); ++i)
    spec.files.emplace_back(wanted == 1 ? "" : i == 0 ? "images" : "labels", unescaped(files[i]));
  return spec;
}

DatasetSpec mpc::parseInputs(const std::vector<std::string> &assignments) {
  DatasetSpec spec;
  for (const std::string &assignment : assignments) {
    std::vector<std::string> pieces = split(assignment, ';');
    parsePreprocessing(pieces, spec.preprocessing);
    for (const std::string &piece : split(pieces[0], ','))
      addAssignment(piece, spec);
  }
  return spec;
}

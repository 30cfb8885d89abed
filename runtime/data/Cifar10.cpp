//===- Cifar10.cpp - CIFAR-10's binary files ------------------------------------------===//
//
// A record is a label byte and 3 × 32 × 32 bytes, planes of red, green and blue.
//
//===----------------------------------------------------------------------------===//

#include "runtime/data/Cifar10.h"
#include "runtime/core/Error.h"
#include "runtime/data/File.h"
#include <sys/stat.h>

using namespace mpc;

static constexpr size_t kPixels = 3 * 32 * 32, kRecord = 1 + kPixels;

static bool exists(const std::string &path) {
  struct stat facts;
  return stat(path.c_str(), &facts) == 0;
}

static std::vector<std::string> filesOf(const std::string &path, bool training) {
  struct stat facts;
  if (stat(path.c_str(), &facts) == 0 && !S_ISDIR(facts.st_mode))
    return {path};
  if (!training)
    return {path + "/test_batch.bin"};
  std::vector<std::string> files;
  for (int i = 1; i <= 5; ++i) {
    std::string file = path + "/data_batch_" + std::to_string(i) + ".bin";
    // The first is asked for in any case, and a gap is a file that got lost.
    if (i == 1 || exists(file)) {
      if (static_cast<int>(files.size()) != i - 1)
        throw Error("cannot read " + quote(path + "/data_batch_" + std::to_string(i - 1) + ".bin") +
                    ": it is missing, and " + quote(file) + " is there");
      files.push_back(file);
    }
  }
  return files;
}

LabeledImages mpc::readCifar10(const std::string &path, bool training) {
  std::vector<unsigned char> images, labels;
  for (const std::string &name : filesOf(path, training)) {
    MappedFile file(name);
    if (file.size() == 0 || file.size() % kRecord != 0)
      throw Error(quote(name) + " is no CIFAR-10 file: its records have " +
                  std::to_string(kRecord) + " bytes, so " +
                  std::to_string((file.size() / kRecord + 1) * kRecord) + " bytes wanted, " +
                  std::to_string(file.size()) + " found");
    for (size_t i = 0; i < file.size() / kRecord; ++i) {
      const unsigned char *record = file.data() + i * kRecord;
      if (record[0] > 9)
        throw Error(quote(name) + ": sample " + std::to_string(i) + " has label " +
                    std::to_string(record[0]) + "; CIFAR-10 has classes 0 to 9");
      labels.push_back(record[0]);
      images.insert(images.end(), record + 1, record + kRecord);
    }
  }
  int64_t count = static_cast<int64_t>(labels.size());
  LabeledImages result;
  result.images = Array::make(FileType::u8, {count, 3, 32, 32}, std::move(images), quote(path));
  result.labels = Array::make(FileType::u8, {count}, std::move(labels), quote(path));
  return result;
}

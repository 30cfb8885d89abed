//===- ImageFolder.cpp - class folders of JPEG and PNG files -------------------------------===//
//
// Decoded by stb_image, a single header, so that a trainer needs no image libraries.
//
//===----------------------------------------------------------------------------===//

#include "runtime/data/ImageFolder.h"
#include "runtime/core/Error.h"
#include "runtime/data/File.h"
#include <algorithm>
#include <climits>
#include <filesystem>

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#pragma GCC diagnostic ignored "-Wsign-compare"
#include <stb/stb_image.h>
#pragma GCC diagnostic pop

using namespace mpc;

static bool isImageName(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(tolower(c)); });
  return name.ends_with(".jpg") || name.ends_with(".jpeg") || name.ends_with(".png");
}

/// Names in a folder that `accept` takes, sorted by bytes.
template <typename Accept>
static std::vector<std::string> list(const std::string &path, Accept accept) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator at(path, error), end;
  for (; !error && at != end; at.increment(error))
    if (accept(*at))
      names.push_back(at->path().filename().string());
  if (error)
    throw Error("cannot read the folder " + quote(path) + ": " + error.message());
  std::sort(names.begin(), names.end());
  return names;
}

/// Appends the planes of one image.
static void decode(const std::string &path, int64_t channels, int64_t height, int64_t width,
                   std::vector<unsigned char> &to) {
  MappedFile file(path);
  int w = 0, h = 0, found = 0;
  int size = static_cast<int>(std::min<size_t>(file.size(), INT_MAX));
  // The size first: nothing is allocated for an image that would be refused.
  if (size == 0 || !stbi_info_from_memory(file.data(), size, &w, &h, &found))
    throw Error(quote(path) +
                " is no JPEG or PNG image: " + (size ? stbi_failure_reason() : "it is empty"));
  if (w != width || h != height)
    throw Error(quote(path) + " has " + std::to_string(w) + " x " + std::to_string(h) +
                " pixels; this program wants " + std::to_string(width) + " x " +
                std::to_string(height));
  unsigned char *pixels =
      stbi_load_from_memory(file.data(), size, &w, &h, &found, static_cast<int>(channels));
  if (!pixels)
    throw Error(quote(path) + " cannot be decoded: " + stbi_failure_reason());
  size_t plane = static_cast<size_t>(height * width), start = to.size();
  to.resize(start + plane * static_cast<size_t>(channels));
  for (size_t c = 0; c < static_cast<size_t>(channels); ++c)
    for (size_t i = 0; i < plane; ++i)
      to[start + c * plane + i] = pixels[i * static_cast<size_t>(channels) + c];
  stbi_image_free(pixels);
}

LabeledImages mpc::readImageFolder(const std::string &path, const std::vector<int64_t> &shape) {
  bool planes = shape.size() == 3 && (shape[0] == 1 || shape[0] == 3);
  if (!planes && shape.size() != 2)
    throw Error("folder: images are [1 or 3, height, width] per sample; this program wants " +
                shapeText(shape));
  int64_t channels = planes ? shape[0] : 1, height = shape[shape.size() - 2], width = shape.back();
  std::vector<std::string> classes = list(path, [](const auto &entry) {
    std::error_code error;
    bool isFolder = entry.is_directory(error);
    if (error && error != std::errc::no_such_file_or_directory) // a link to nothing is no class
      throw Error("cannot read " + quote(entry.path().string()) + ": " + error.message());
    return isFolder;
  });
  if (classes.empty())
    throw Error(quote(path) + " has no class sub-folders");
  std::vector<unsigned char> images, bytes;
  std::vector<int32_t> labels;
  for (size_t label = 0; label < classes.size(); ++label) {
    std::string folder = path + "/" + classes[label];
    for (const std::string &name : list(folder, [](const auto &entry) {
           return isImageName(entry.path().filename().string());
         })) {
      decode(folder + "/" + name, channels, height, width, images);
      labels.push_back(static_cast<int32_t>(label));
    }
  }
  if (labels.empty())
    throw Error(quote(path) + " has no .jpg, .jpeg or .png files in its class sub-folders");
  int64_t count = static_cast<int64_t>(labels.size());
  const auto *raw = reinterpret_cast<const unsigned char *>(labels.data());
  bytes.assign(raw, raw + labels.size() * sizeof(int32_t));
  LabeledImages result;
  std::vector<int64_t> full = shape;
  full.insert(full.begin(), count);
  result.images = Array::make(FileType::u8, full, std::move(images), quote(path));
  result.labels = Array::make(FileType::i32, {count}, std::move(bytes), quote(path));
  return result;
}

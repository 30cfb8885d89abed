//===- Dataset.cpp - files bound to a program's inputs -----------------------------------===//
//
// Bytes that become floats stay bytes in memory (a quarter of the space) with a table of 256
// values per channel, which also makes scale, mean and deviation free and rounds them once.
// Everything else is converted here, so that a batch is made of memory copies.
//
//===----------------------------------------------------------------------------===//

#include "runtime/data/Dataset.h"
#include "runtime/core/Error.h"
#include "runtime/data/Cifar10.h"
#include "runtime/data/File.h"
#include "runtime/data/Idx.h"
#include "runtime/data/ImageFolder.h"
#include "runtime/data/Npy.h"
#include <algorithm>
#include <cstring>

using namespace mpc;

namespace {

struct Loaded {
  std::string name; ///< of the program's tensor
  Array array;
  bool isImage = false; ///< bytes mean [0, 1], the channel axis follows the model
};

std::string describe(const Program &program, const TensorInfo &tensor) {
  std::string shape = "[";
  int axis = batchAxis(program, tensor);
  std::string text = axis < 0 ? "" : "samples";
  for (size_t d = 0; d < tensor.shape.size(); ++d)
    if (static_cast<int>(d) != axis)
      text += (text.empty() ? "" : ", ") + std::to_string(tensor.shape[d]);
  return quote(tensor.name) + " (" + fileTypeName(fileTypeOf(tensor.type)) + " " + shape + text +
         "])";
}

std::string describeAll(const Program &program, const std::vector<uint32_t> &tensors) {
  std::string result;
  for (uint32_t index : tensors)
    result += (result.empty() ? "" : ", ") + describe(program, program.tensors[index]);
  return result.empty() ? "nothing" : result;
}

/// The one floating-point input that images are for.
const TensorInfo &imageInput(const Program &program, const std::vector<uint32_t> &tensors) {
  const TensorInfo *found = nullptr;
  for (uint32_t index : tensors) {
    const TensorInfo &tensor = program.tensors[index];
    if (tensor.role != Role::input)
      continue;
    if (found)
      throw Error("this program has several inputs (" + describeAll(program, tensors) +
                  "): give them as npy:NAME=FILE,…");
    found = &tensor;
  }
  if (!found)
    throw Error("this program has no input that images could be for");
  return *found;
}

std::string labelsName(const Program &program) {
  int index = program.find(Role::labels);
  return index >= 0 ? program.tensors[static_cast<size_t>(index)].name : "labels";
}

std::vector<Loaded> readFiles(const DatasetSpec &spec, const Program &program,
                              const std::vector<uint32_t> &tensors, bool training) {
  std::vector<Loaded> loaded;
  switch (spec.kind) {
  case DatasetSpec::Kind::npy:
    for (const auto &[name, file] : spec.files)
      loaded.push_back({name, readNpy(file), false});
    break;
  case DatasetSpec::Kind::idx: {
    Array images = readIdx(spec.files[0].second), labels = readIdx(spec.files[1].second);
    if (images.shape.size() < 2)
      throw Error(images.source + " holds no images: its shape is " + shapeText(images.shape));
    int64_t labelCount = labels.shape.empty() ? 0 : labels.shape[0];
    if (images.shape[0] != labelCount)
      throw Error(labels.source + " has " + std::to_string(labelCount) + " labels for the " +
                  std::to_string(images.shape[0]) + " images of " + images.source);
    loaded.push_back({imageInput(program, tensors).name, std::move(images), true});
    loaded.push_back({labelsName(program), std::move(labels), false});
    break;
  }
  case DatasetSpec::Kind::cifar10: {
    LabeledImages data = readCifar10(spec.files[0].second, training);
    loaded.push_back({imageInput(program, tensors).name, std::move(data.images), true});
    loaded.push_back({labelsName(program), std::move(data.labels), false});
    break;
  }
  case DatasetSpec::Kind::folder: {
    const TensorInfo &input = imageInput(program, tensors);
    std::vector<int64_t> shape = input.shape;
    int axis = batchAxis(program, input);
    if (axis >= 0)
      shape.erase(shape.begin() + axis);
    LabeledImages data = readImageFolder(spec.files[0].second, shape);
    loaded.push_back({input.name, std::move(data.images), true});
    loaded.push_back({labelsName(program), std::move(data.labels), false});
    break;
  }
  }
  return loaded;
}

/// Axes of one length 1 more or less, or one flat axis, hold the same image.
bool sameImage(const std::vector<int64_t> &file, const std::vector<int64_t> &wanted) {
  auto squeezed = [](std::vector<int64_t> shape) {
    std::erase(shape, 1);
    return shape;
  };
  if (squeezed(file) == squeezed(wanted))
    return true;
  return wanted.size() == 1 && elementCount(file) == wanted[0];
}

/// Checks the file's shape against the tensor's and sets the column's layout.
void bindShape(const Program &program, const Loaded &loaded, Column &column) {
  const TensorInfo &tensor = *column.tensor;
  const Array &array = loaded.array;
  int axis = batchAxis(program, tensor);
  column.perSample = axis >= 0;
  if (axis < 0) {
    column.inner = tensor.elements();
    if (array.shape != tensor.shape)
      throw Error(array.source + " has shape " + shapeText(array.shape) + "; " +
                  quote(tensor.name) + " wants " + shapeText(tensor.shape));
    return;
  }
  std::vector<int64_t> wanted = tensor.shape;
  wanted.erase(wanted.begin() + axis);
  for (int d = 0; d < axis; ++d)
    column.outer *= tensor.shape[static_cast<size_t>(d)];
  for (size_t d = static_cast<size_t>(axis) + 1; d < tensor.shape.size(); ++d)
    column.inner *= tensor.shape[d];
  std::vector<int64_t> found(array.shape.begin() + (array.shape.empty() ? 0 : 1),
                             array.shape.end());
  if (array.shape.empty() || (found != wanted && !(loaded.isImage && sameImage(found, wanted)))) {
    bool classes = tensor.role == Role::labels && program.classes > 0;
    throw Error(array.source + " has shape " + shapeText(array.shape) + "; " +
                describe(program, tensor) + " wants samples first, then " + shapeText(wanted) +
                (classes ? ": class indices, not one-hot rows" : ""));
  }
}

void checkLabels(const Program &program, const Column &column) {
  const Array &labels = column.data;
  int64_t perSample = std::max<int64_t>(column.sampleElements(), 1);
  for (int64_t i = 0, n = labels.elements(); i < n; ++i) {
    int64_t label = elementAsInteger(labels, i);
    if ((label < 0 || label >= program.classes) && label != program.ignore_index)
      throw Error(labels.source + ": sample " + std::to_string(i / perSample) + " has label " +
                  std::to_string(label) + "; there are " + std::to_string(program.classes) +
                  " classes, 0 to " + std::to_string(program.classes - 1) + ", and " +
                  std::to_string(program.ignore_index) + " is left out of the loss");
  }
}

void checkIndices(int64_t limit, const Column &column) {
  const Array &indices = column.data;
  int64_t perSample = std::max<int64_t>(column.sampleElements(), 1);
  for (int64_t i = 0, n = indices.elements(); i < n; ++i) {
    int64_t index = elementAsInteger(indices, i);
    if (index < -limit || index >= limit)
      throw Error(indices.source + ": sample " + std::to_string(i / perSample) + " has index " +
                  std::to_string(index) + " for " + quote(column.tensor->name) +
                  ", whose table has " + std::to_string(limit) + " rows (0 to " +
                  std::to_string(limit - 1) + ")");
  }
}

/// Channels and planes of an image by the model's per-sample shape: [H, W] or [C, H, W].
void bindPlanes(const Program &program, const Preprocessing &wanted, Column &column) {
  std::vector<int64_t> shape = column.tensor->shape;
  shape.erase(shape.begin() + batchAxis(program, *column.tensor));
  if (shape.size() == 3 && shape[2] == 1 && shape[0] != 1)
    shape = {1, shape[0], shape[1]};
  if (shape.size() == 2)
    shape.insert(shape.begin(), 1);
  bool planes = shape.size() == 3;
  size_t listed = std::max(wanted.mean.size(), wanted.std.size());
  for (size_t size : {wanted.mean.size(), wanted.std.size()})
    if (size > 1 && (shape.empty() || shape[0] != static_cast<int64_t>(size)))
      throw Error("mean and std have " + std::to_string(size) + " values; " +
                  describe(program, *column.tensor) +
                  " does not have as many channels (axis 1 with the samples first)");
  column.channels = listed > 1 || planes ? shape[0] : 1;
  if (!wanted.crop && !wanted.flip)
    return;
  if (!planes)
    throw Error("crop and flip are for images [channels, height, width]; " +
                describe(program, *column.tensor) + " is none");
  column.height = shape[1];
  column.width = shape[2];
}

double channelValue(const std::vector<double> &values, int64_t channel, double otherwise) {
  if (values.empty())
    return otherwise;
  return values[values.size() == 1 ? 0 : static_cast<size_t>(channel)];
}

/// Values for the program: exact conversion, or a table, or preprocessed values (one rounding).
void bindValues(const Program &program, const Preprocessing &wanted, const Loaded &loaded,
                bool training, Column &column) {
  const TensorInfo &tensor = *column.tensor;
  const Array &array = loaded.array;
  bool preprocessed = wanted.any() && tensor.role == Role::input && isFloat(tensor.type);
  bool bytes = array.type == FileType::u8 && isFloat(tensor.type) && tensor.role == Role::input &&
               column.perSample;
  if (!preprocessed && !bytes) {
    column.data = converted(array, tensor.type);
    return;
  }
  if (!column.perSample)
    throw Error(quote(tensor.name) + " has no axis of samples, so it cannot be preprocessed");
  bindPlanes(program, preprocessed ? wanted : Preprocessing(), column);
  double divisor = loaded.isImage && array.type == FileType::u8 ? 255 : 1;
  auto value = [&](double raw, int64_t channel) {
    // (raw / divisor · scale − mean) / std in double
    return (raw / divisor * wanted.scale - channelValue(wanted.mean, channel, 0)) /
           channelValue(wanted.std, channel, 1);
  };
  size_t size = elementSize(tensor.type);
  auto write = [&](double number, unsigned char *to) {
    convertReals(ElementType::f64, &number, tensor.type, to, 1);
  };
  if (training && (wanted.crop || wanted.flip)) {
    column.crop = wanted.crop;
    column.flip = wanted.flip;
    column.black.resize(static_cast<size_t>(column.channels) * size);
    for (int64_t c = 0; c < column.channels; ++c)
      write(value(0, c), column.black.data() + static_cast<size_t>(c) * size);
  }
  if (array.type == FileType::u8) {
    column.tables.resize(static_cast<size_t>(column.channels) * 256 * size);
    for (int64_t c = 0; c < column.channels; ++c)
      for (int64_t raw = 0; raw < 256; ++raw)
        write(value(static_cast<double>(raw), c),
              column.tables.data() + static_cast<size_t>(c * 256 + raw) * size);
    column.data = array;
    return;
  }
  if (!wanted.changesValues()) {
    column.data = converted(array, tensor.type);
    return;
  }
  int64_t count = array.elements(), plane = column.sampleElements() / column.channels;
  std::vector<unsigned char> storage(static_cast<size_t>(count) * size);
  for (int64_t i = 0; i < count; ++i)
    write(value(elementAsDouble(array, i), i / plane % column.channels),
          storage.data() + static_cast<size_t>(i) * size);
  column.data = Array::make(fileTypeOf(tensor.type), array.shape, std::move(storage), array.source);
}

void checkRanges(const Program &program, const Loaded &loaded, Column &column) {
  const TensorInfo &tensor = *column.tensor;
  bool classes = tensor.role == Role::labels && program.classes > 0 && !isFloat(tensor.type);
  if (classes && isFloat(loaded.array.type))
    throw Error(loaded.array.source + " holds " + fileTypeName(loaded.array.type) +
                "; labels must be integer class indices, 0 to " +
                std::to_string(program.classes - 1));
  column.data = loaded.array;
  if (classes)
    checkLabels(program, column);
  auto limit = program.index_limit.find(tensor.name);
  if (tensor.role == Role::input && limit != program.index_limit.end() &&
      !isFloat(loaded.array.type))
    checkIndices(limit->second, column);
}

} // namespace

int mpc::batchAxis(const Program &program, const TensorInfo &tensor) {
  auto found = program.batch_axis.find(tensor.role == Role::labels ? "labels" : tensor.name);
  if (found == program.batch_axis.end() && tensor.role == Role::labels)
    found = program.batch_axis.find(tensor.name);
  if (found != program.batch_axis.end())
    return found->second < static_cast<int64_t>(tensor.shape.size())
               ? static_cast<int>(found->second)
               : -1;
  return !tensor.shape.empty() && tensor.shape[0] == program.batch ? 0 : -1;
}

std::vector<uint32_t> mpc::inputsOf(const Program &program, const std::vector<std::string> &entries,
                                    bool withLabels) {
  std::vector<uint32_t> result;
  for (const std::string &name : entries) {
    auto entry = program.entries.find(name);
    if (entry == program.entries.end())
      continue;
    for (uint32_t index : entry->second.arguments) {
      Role role = program.tensors[index].role;
      bool wanted = role == Role::input || (role == Role::labels && withLabels);
      if (wanted && std::find(result.begin(), result.end(), index) == result.end())
        result.push_back(index);
    }
  }
  return result;
}

/// Mistyped, mostly.
static std::string unknownNames(const Program &program, const std::vector<Loaded> &loaded) {
  std::string names;
  for (const Loaded &each : loaded)
    if (each.name != "labels" && program.find(Role::input, each.name) < 0)
      names += (names.empty() ? "" : ", ") + quote(each.name);
  return names.empty() ? "" : "; there is no " + names;
}

Dataset Dataset::load(const DatasetSpec &spec, const Program &program,
                      const std::vector<uint32_t> &tensors, bool training) {
  std::vector<Loaded> loaded = readFiles(spec, program, tensors, training);
  Dataset result;
  std::string first;
  if (spec.preprocessing.any())
    if (const TensorInfo &input = imageInput(program, tensors); !isFloat(input.type))
      throw Error(describe(program, input) +
                  " is of integers: scale, mean, std, crop and flip are for floating-point inputs");
  std::vector<bool> used(loaded.size());
  for (uint32_t index : tensors) {
    const TensorInfo &tensor = program.tensors[index];
    size_t at = 0;
    while (at < loaded.size() && loaded[at].name != tensor.name &&
           !(tensor.role == Role::labels && loaded[at].name == "labels"))
      ++at;
    if (at == loaded.size())
      throw Error("no data for " + describe(program, tensor) + "; this program wants " +
                  describeAll(program, tensors) + unknownNames(program, loaded));
    used[at] = true;
    Column column;
    column.tensor = &tensor;
    bindShape(program, loaded[at], column);
    if (column.perSample) {
      int64_t samples = loaded[at].array.shape[0];
      if (samples == 0)
        throw Error(loaded[at].array.source + " holds no samples");
      if (first.empty()) {
        result.count = samples;
        first = loaded[at].array.source;
      } else if (samples != result.count) {
        throw Error(loaded[at].array.source + " has " + std::to_string(samples) + " samples, " +
                    first + " has " + std::to_string(result.count));
      }
    }
    checkRanges(program, loaded[at], column);
    bindValues(program, spec.preprocessing, loaded[at], training, column);
    result.all.push_back(std::move(column));
  }
  for (size_t i = 0; i < loaded.size(); ++i) {
    // An input that this command does not read, or labels where none are needed, may be given.
    if (!used[i] && loaded[i].name != "labels" && program.find(Role::input, loaded[i].name) < 0)
      throw Error("this program has no input " + quote(loaded[i].name) + "; it wants " +
                  describeAll(program, tensors));
  }
  if (first.empty()) // no input has an axis of samples: one call is one sample
    result.count = 1;
  return result;
}

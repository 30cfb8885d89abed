//===- Batcher.cpp - samples into a program's inputs -------------------------------------===//
//
// Between two steps nothing else runs, so a batch must be little more than copies: a run of
// samples in file order goes to the device without a stop, a shuffled batch is gathered sample
// by sample. Crops and mirror images depend on seed, epoch and sample only: a resumed run, or
// another batch size, sees the same pictures.
//
//===----------------------------------------------------------------------------===//

#include "runtime/data/Batcher.h"
#include "runtime/data/Shuffle.h"
#include <algorithm>
#include <cstring>

using namespace mpc;

Batcher::Batcher(const Program &program, const Dataset &dataset, Device &device)
    : program(program), dataset(dataset), device(device) {
  int index = program.find(Role::samples);
  if (index >= 0)
    samples = &program.tensors[static_cast<size_t>(index)];
  size_t largest = 0;
  for (const Column &column : dataset.columns()) {
    staging.emplace_back(column.perSample ? column.tensor->bytes() : 0);
    if (!column.tables.empty() || column.crop || column.flip)
      largest = std::max(largest, static_cast<size_t>(column.sampleElements()) *
                                      elementSize(column.tensor->type));
  }
  decoded.resize(largest);
  augmented.resize(largest);
}

void Batcher::fill(const int64_t *order, int64_t count, uint64_t seed, uint64_t epoch) {
  const std::vector<Column> &columns = dataset.columns();
  bool inFileOrder = count == program.batch;
  for (int64_t i = 1; i < count && inFileOrder; ++i)
    inFileOrder = order[i] == order[0] + i;
  for (size_t c = 0; c < columns.size(); ++c) {
    const Column &column = columns[c];
    bool plain = column.tables.empty() && !column.crop && !column.flip && column.outer == 1;
    if (!column.perSample) {
      device.write(*column.tensor, column.data.bytes);
    } else if (plain && inFileOrder) {
      size_t bytes = static_cast<size_t>(column.inner) * elementSize(column.tensor->type);
      device.write(*column.tensor, column.data.bytes + static_cast<size_t>(order[0]) * bytes);
    } else {
      fillColumn(column, staging[c].data(), order, count, seed, epoch);
      device.write(*column.tensor, staging[c].data());
    }
  }
  if (samples)
    device.write(*samples, &count);
}

void Batcher::fillColumn(const Column &column, unsigned char *to, const int64_t *order,
                         int64_t count, uint64_t seed, uint64_t epoch) {
  size_t element = elementSize(column.tensor->type);
  size_t inner = static_cast<size_t>(column.inner) * element;
  size_t batch = static_cast<size_t>(program.batch);
  auto place = [&](size_t b, const unsigned char *from) {
    // [outer, inner] of the sample → [outer, batch, inner] at b
    for (size_t o = 0; o < static_cast<size_t>(column.outer); ++o)
      memcpy(to + (o * batch + b) * inner, from + o * inner, inner);
  };
  for (int64_t b = 0; b < count; ++b)
    place(static_cast<size_t>(b), sample(column, order[b], seed, epoch));
  if (count < program.batch) {
    const unsigned char *first = sample(column, order[0], seed, epoch);
    for (size_t b = static_cast<size_t>(count); b < batch; ++b)
      place(b, first);
  }
}

const unsigned char *Batcher::sample(const Column &column, int64_t index, uint64_t seed,
                                     uint64_t epoch) {
  size_t elements = static_cast<size_t>(column.sampleElements());
  size_t size = elementSize(column.tensor->type);
  const unsigned char *from = column.data.bytes + static_cast<size_t>(index) * elements *
                                                      (column.tables.empty() ? size : 1);
  if (!column.tables.empty()) {
    size_t plane = elements / static_cast<size_t>(column.channels);
    for (size_t c = 0; c < static_cast<size_t>(column.channels); ++c) {
      const unsigned char *table = column.tables.data() + c * 256 * size;
      unsigned char *to = decoded.data() + c * plane * size;
      if (size == 4)
        for (size_t i = 0; i < plane; ++i)
          memcpy(to + i * 4, table + from[c * plane + i] * size_t(4), 4);
      else
        for (size_t i = 0; i < plane; ++i)
          memcpy(to + i * size, table + from[c * plane + i] * size, size);
    }
    from = decoded.data();
  }
  if (!column.crop && !column.flip)
    return from;
  augment(column, from, augmented.data(), index, seed, epoch);
  return augmented.data();
}

void Batcher::augment(const Column &column, const unsigned char *from, unsigned char *to,
                      int64_t index, uint64_t seed, uint64_t epoch) {
  // The key keeps this stream apart from the shuffling, which has one key only.
  Generator generator(seed, epoch ^ 0x696d616765, static_cast<uint64_t>(index));
  size_t size = elementSize(column.tensor->type);
  int64_t range = 2 * column.crop + 1;
  int64_t down = static_cast<int64_t>(generator.below(static_cast<uint64_t>(range))) - column.crop;
  int64_t right = static_cast<int64_t>(generator.below(static_cast<uint64_t>(range))) - column.crop;
  bool mirrored = generator.below(2) == 1 && column.flip;
  for (int64_t c = 0; c < column.channels; ++c)
    for (int64_t y = 0; y < column.height; ++y)
      for (int64_t x = 0; x < column.width; ++x) {
        int64_t fromY = y + down, fromX = (mirrored ? column.width - 1 - x : x) + right;
        bool inside = fromY >= 0 && fromY < column.height && fromX >= 0 && fromX < column.width;
        const unsigned char *value =
            inside
                ? from +
                      static_cast<size_t>((c * column.height + fromY) * column.width + fromX) * size
                : column.black.data() + static_cast<size_t>(c) * size;
        memcpy(to, value, size);
        to += size;
      }
}

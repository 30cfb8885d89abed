//===- Export.cpp - the trained model as ONNX ----------------------------------------===//
//
// The compiler prepared the model in its inference form as bytes with holes; what is left to
// do is to stream them and fill the holes, so this needs no protobuf.
//
//===----------------------------------------------------------------------------===//

#include "runtime/train/Export.h"
#include "runtime/core/Error.h"
#include "runtime/data/Array.h"
#include <algorithm>

using namespace mpc;

/// A parameter's or statistic's bytes, in its program's type.
static std::vector<unsigned char> weightBytes(const Program &program, const TensorInfo &tensor,
                                              const CheckpointFile *checkpoint) {
  if (checkpoint)
    return checkpoint->read(tensor);
  std::vector<unsigned char> bytes(tensor.bytes()); // no initial value: zeros
  if (tensor.initial.bytes)
    convertReals(tensor.initial_type, program.raw->data + tensor.initial.offset, tensor.type,
                 bytes.data(), static_cast<size_t>(tensor.elements()));
  return bytes;
}

void mpc::requireWeights(const Program &program, bool checkpoint, const std::string &command) {
  if (checkpoint)
    return;
  for (uint32_t index : program.all(Role::parameter)) {
    const TensorInfo &tensor = program.tensors[index];
    if (tensor.initial.bytes == 0 && tensor.elements() > 0)
      throw Error(command + ": this trainer carries no weights (it was compiled with "
                            "--external-weights): give --checkpoint FILE");
  }
}

void mpc::exportModel(const Program &program, const CheckpointFile *checkpoint,
                      const std::string &output) {
  if (program.export_template.bytes == 0)
    throw Error("export: this program carries no model to export");
  std::vector<ExportHole> holes = program.export_holes;
  std::sort(holes.begin(), holes.end(),
            [](const ExportHole &a, const ExportHole &b) { return a.offset < b.offset; });
  const unsigned char *model = program.raw->data + program.export_template.offset;
  OutputFile file(output);
  uint64_t at = 0;
  std::vector<unsigned char> converted;
  for (const ExportHole &hole : holes) {
    const TensorInfo &tensor = program.tensors[hole.tensor];
    size_t count = static_cast<size_t>(tensor.elements());
    if (hole.offset < at || hole.bytes != count * elementSize(hole.type) ||
        hole.bytes > program.export_template.bytes - hole.offset)
      throw Error("compiled program: the place of " + quote(tensor.name) +
                  " in the model to export is wrong (compile the model again)");
    file.write(model + at, hole.offset - at);
    std::vector<unsigned char> bytes = weightBytes(program, tensor, checkpoint);
    converted.resize(hole.bytes);
    convertReals(tensor.type, bytes.data(), hole.type, converted.data(), count);
    file.write(converted.data(), converted.size());
    at = hole.offset + hole.bytes;
  }
  file.write(model + at, program.export_template.bytes - at);
  file.commit();
}

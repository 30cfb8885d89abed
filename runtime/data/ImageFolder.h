//===- ImageFolder.h - class folders of JPEG and PNG files ---------------------------------===//

#ifndef MPC_RUNTIME_DATA_IMAGEFOLDER_H
#define MPC_RUNTIME_DATA_IMAGEFOLDER_H

#include "runtime/data/Cifar10.h"

namespace mpc {

/// Reads DIR/CLASS/IMAGE: classes are the sub-folders in byte order of their names, images the
/// .jpg, .jpeg and .png files in them, likewise. `shape` is what the model wants per sample,
/// [channels, height, width] with 1 or 3 channels (or [height, width]): every image must have
/// that size; gray becomes three equal channels, color becomes gray by ITU-R 601. Throws Error
/// naming the file.
LabeledImages readImageFolder(const std::string &path, const std::vector<int64_t> &shape);

} // namespace mpc

#endif // MPC_RUNTIME_DATA_IMAGEFOLDER_H

//===- DnnDescriptors.h - descriptors of cuDNN's backend ----------------------------------===//
//
// For operations that cudnn-frontend does not make as they have to be.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CUDA_DNNDESCRIPTORS_H
#define MPC_RUNTIME_CUDA_DNNDESCRIPTORS_H

#include <vector>

#include <cudnn.h>
#include <cudnn_frontend_utils.h>

namespace mpc::cuda::dnn {

/// Sets an attribute to these elements. Throws cudnnException.
template <typename T>
void set(const cudnn_frontend::ManagedOpaqueDescriptor &descriptor,
         cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
         const std::vector<T> &elements) {
  cudnnStatus_t status =
      cudnn_frontend::detail::set_attribute(descriptor->get_backend_descriptor(), name, type,
                                            static_cast<int64_t>(elements.size()), elements.data());
  if (status != CUDNN_STATUS_SUCCESS)
    throw cudnn_frontend::cudnnException("an attribute cannot be set", status);
}
/// To one element.
template <typename T>
void set(const cudnn_frontend::ManagedOpaqueDescriptor &descriptor,
         cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, T element) {
  set(descriptor, name, type, std::vector<T>{element});
}

/// Throws cudnnException.
inline void finalize(const cudnn_frontend::ManagedOpaqueDescriptor &descriptor) {
  cudnnStatus_t status = cudnn_frontend::detail::finalize(descriptor->get_backend_descriptor());
  if (status != CUDNN_STATUS_SUCCESS)
    throw cudnn_frontend::cudnnException("a descriptor cannot be finalized", status);
}

} // namespace mpc::cuda::dnn

#endif // MPC_RUNTIME_CUDA_DNNDESCRIPTORS_H

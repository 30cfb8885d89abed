//===- Objects.h - what the simulated cuDNN is made of ------------------------------------===//
//
// A descriptor is the list of its attributes. A finalized one never changes, so that others refer
// to it, and keep it alive, whatever becomes of its handle. What the library finds out (an engine's
// notes, a plan's workspace) is attributes like those that a caller sets. Calls come one at a time.
//
//===--------------------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_SIM_DNN_OBJECTS_H
#define MPC_RUNTIME_SIM_DNN_OBJECTS_H

#include "runtime/sim/dnn/Fused.h"
#include "runtime/sim/library/Table.h"
#include <cstddef>
#include <cstring>
#include <cuda.h>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <thread>

namespace mpc::sim::dnn {

/// cudnnHandle_t: the context that was current when it was made, and the stream it works in.
struct Handle {
  CUcontext context = nullptr;
  int capability = 0; ///< 10 · major + minor
  cudaStream_t stream = nullptr;
  std::thread::id user; ///< a thread that makes a plan with it now
};

struct Descriptor;

/// The elements of an attribute.
struct Value {
  int64_t count = 0;
  std::vector<std::byte> bytes;                               ///< of all of them, or
  std::vector<std::shared_ptr<const Descriptor>> descriptors; ///< where they are descriptors
};

struct Descriptor {
  cudnnBackendDescriptorType_t type{};
  bool isFinalized = false;
  std::map<cudnnBackendAttributeName_t, Value> values;
  std::shared_ptr<const Problem> problem; ///< of a finalized operation graph

  bool has(cudnnBackendAttributeName_t name) const { return values.count(name) != 0; }
  /// All elements; none where it is not set.
  template <typename T> std::vector<T> all(cudnnBackendAttributeName_t name) const {
    auto found = values.find(name);
    if (found == values.end())
      return {};
    std::vector<T> elements(found->second.count);
    if (!elements.empty())
      std::memcpy(elements.data(), found->second.bytes.data(), found->second.bytes.size());
    return elements;
  }
  /// The only element, or what it is where it is not set.
  template <typename T> T one(cudnnBackendAttributeName_t name, T otherwise = {}) const {
    auto found = values.find(name);
    if (found != values.end())
      std::memcpy(static_cast<void *>(&otherwise), found->second.bytes.data(), sizeof(T));
    return otherwise;
  }
  /// Null where it is not set.
  const Descriptor *descriptor(cudnnBackendAttributeName_t name) const {
    auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.descriptors.front().get();
  }
  template <typename T> void set(cudnnBackendAttributeName_t name, const std::vector<T> &elements) {
    Value &value = values[name];
    value.count = static_cast<int64_t>(elements.size());
    const auto *bytes = reinterpret_cast<const std::byte *>(elements.data());
    value.bytes.assign(bytes, bytes + elements.size() * sizeof(T));
  }
  void set(cudnnBackendAttributeName_t name,
           std::vector<std::shared_ptr<const Descriptor>> elements) {
    Value &value = values[name];
    value.count = static_cast<int64_t>(elements.size());
    value.descriptors = std::move(elements);
  }
};

struct Library {
  std::mutex mutex;
  LibraryTable<cudnnHandle_t, Handle> handles;
  LibraryTable<cudnnBackendDescriptor_t, std::shared_ptr<Descriptor>> descriptors;
};

/// The one of this process. It stays until the process has ended.
Library &library();

/// Says on stderr, and to cudnnGetLastErrorString, why a call fails, and returns its result.
[[gnu::format(printf, 2, 3)]] cudnnStatus_t refuse(cudnnStatus_t status, const char *format, ...);

/// Likewise, to cudnnGetLastErrorString alone: where a caller has to count on the answer.
[[gnu::format(printf, 2, 3)]] cudnnStatus_t decline(cudnnStatus_t status, const char *format, ...);

/// Runs a call, alone.
template <typename Body> cudnnStatus_t call(Body body) {
  std::lock_guard lock(library().mutex);
  try {
    return body(library());
  } catch (const std::bad_alloc &) {
    return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
  }
}

/// Refuses a call with a handle that is none (null), or that another thread uses at this moment: a
/// handle is for one thread at a time.
cudnnStatus_t checkHandle(const char *function, const Handle *handle); // Handles.cpp

/// Checks a descriptor's attributes against each other, and adds those that follow from them.
cudnnStatus_t finalize(Descriptor &descriptor); // Finalize.cpp

/// What a finalized tensor descriptor says.
Tensor tensorOf(const Descriptor &descriptor); // Graph.cpp
/// Makes a convolution of its operation.
cudnnStatus_t readConvolution(const Descriptor &operation, Problem &problem); // Graph.cpp
/// Makes attention of the operations of a graph.
cudnnStatus_t readFused(const Descriptor &graph, Fused &fused); // FusedGraph.cpp
/// Either of the operations of a graph.
cudnnStatus_t readGraph(const Descriptor &graph, Problem &problem); // Graph.cpp

} // namespace mpc::sim::dnn

#endif // MPC_RUNTIME_SIM_DNN_OBJECTS_H

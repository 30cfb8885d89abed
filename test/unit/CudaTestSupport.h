//===- CudaTestSupport.h - the runtime's classes on a simulated GPU -----------------------===//

#ifndef MPC_TEST_UNIT_CUDATESTSUPPORT_H
#define MPC_TEST_UNIT_CUDATESTSUPPORT_H

#include "SimDriverSupport.h"
#include "runtime/core/Error.h"
#include "runtime/cuda/Gpu.h"

namespace mpc::test {

/// Runs the body with the runtime's GPU in a process of its own; returns what was written to
/// stderr.
inline std::string onRuntimeGpu(const std::function<void(const cuda::Gpu &)> &body,
                                const SimSettings &settings = {}) {
  return inProcess(settings, [&] {
    cuda::Gpu gpu(MPC_TEST_SIM_FOLDER, 0);
    body(gpu);
  });
}

/// The body throws an Error whose message has this part.
template <typename Body> void expectError(const std::string &part, Body body) {
  try {
    body();
    ADD_FAILURE() << "no error: " << part;
  } catch (const Error &error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

} // namespace mpc::test

#endif // MPC_TEST_UNIT_CUDATESTSUPPORT_H

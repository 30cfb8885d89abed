//===- Errors.cpp - what the simulated driver says ---------------------------------------===//
//
// A driver answers with a number, here a line on stderr says what was wrong, too.
//
//===--------------------------------------------------------------------------------------===//

#include "runtime/sim/driver/Errors.h"
#include <cstdarg>
#include <cstdio>

namespace mpc::sim {

namespace {
void sayList(const char *format, va_list arguments) {
  char text[1024];
  std::vsnprintf(text, sizeof text, format, arguments);
  std::fprintf(stderr, "mpc-sim: %s\n", text);
}
} // namespace

void say(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  sayList(format, arguments);
  va_end(arguments);
}

CUresult refuse(CUresult result, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  sayList(format, arguments);
  va_end(arguments);
  return result;
}

} // namespace mpc::sim

namespace {
struct Text {
  CUresult result;
  const char *name, *text;
};

#define MPC_RESULT(name, text) {name, #name, text}
constexpr Text kTexts[] = {
    MPC_RESULT(CUDA_SUCCESS, "no error"),
    MPC_RESULT(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    MPC_RESULT(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    MPC_RESULT(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    MPC_RESULT(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    MPC_RESULT(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library"),
    MPC_RESULT(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
    MPC_RESULT(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    MPC_RESULT(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    MPC_RESULT(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    MPC_RESULT(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    MPC_RESULT(CUDA_ERROR_NO_BINARY_FOR_GPU,
               "no kernel image is available for execution on the device"),
    MPC_RESULT(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    MPC_RESULT(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    MPC_RESULT(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "PTX JIT compiler library not found"),
    MPC_RESULT(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
               "the provided PTX was compiled with an unsupported toolchain."),
    MPC_RESULT(CUDA_ERROR_INVALID_SOURCE, "device kernel image is invalid"),
    MPC_RESULT(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    MPC_RESULT(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "shared object symbol not found"),
    MPC_RESULT(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "shared object initialization failed"),
    MPC_RESULT(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
    MPC_RESULT(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    MPC_RESULT(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    MPC_RESULT(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    MPC_RESULT(CUDA_ERROR_NOT_READY, "device not ready"),
    MPC_RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    MPC_RESULT(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    MPC_RESULT(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    MPC_RESULT(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    MPC_RESULT(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    MPC_RESULT(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    MPC_RESULT(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    MPC_RESULT(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    MPC_RESULT(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized"),
    MPC_RESULT(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
               "system has unsupported display driver / cuda driver combination"),
    MPC_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
               "operation not permitted when stream is capturing"),
    MPC_RESULT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
               "operation failed due to a previous error during capture"),
    MPC_RESULT(CUDA_ERROR_STREAM_CAPTURE_MERGE,
               "operation would result in a merge of separate capture sequences"),
    MPC_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as "
                                                    "it began"),
    MPC_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    MPC_RESULT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
               "dependency created on uncaptured work in another stream"),
    MPC_RESULT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
               "operation would make the legacy stream depend on a capturing blocking stream"),
    MPC_RESULT(CUDA_ERROR_CAPTURED_EVENT,
               "operation not permitted on an event last recorded in a capturing stream"),
    MPC_RESULT(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
               "attempt to terminate a thread-local capture sequence from another thread"),
    MPC_RESULT(CUDA_ERROR_UNKNOWN, "unknown error"),
};
#undef MPC_RESULT

const Text *find(CUresult result) {
  for (const Text &text : kTexts)
    if (text.result == result)
      return &text;
  return nullptr;
}
} // namespace

CUresult CUDAAPI cuGetErrorName(CUresult error, const char **name) {
  const Text *text = find(error);
  if (!name)
    return CUDA_ERROR_INVALID_VALUE;
  *name = text ? text->name : nullptr;
  return text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char **string) {
  const Text *text = find(error);
  if (!string)
    return CUDA_ERROR_INVALID_VALUE;
  *string = text ? text->text : nullptr;
  return text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

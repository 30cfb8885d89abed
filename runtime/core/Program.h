//===- Program.h - the compiled program as the runtime sees it ------------------===//
//
// `mpc` writes one object file per model. It defines `mpc_program` (MpcProgram): kernels for the
// CPU as plain functions, and everything else as data: a JSON text (docs/program.md) and one block
// of bytes (initial weights, constants, images of GPU kernels, the model to export with holes for
// the weights).
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CORE_PROGRAM_H
#define MPC_RUNTIME_CORE_PROGRAM_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace mpc {
class Device;
struct Program;
/// Makes the device that --device names ("" if it was not given), with `threads` threads of the CPU
/// (≤ 0: all). Throws Error.
using MakeDevice = std::unique_ptr<Device> (*)(const Program &program, const std::string &device,
                                               int threads);
} // namespace mpc

extern "C" {
/// A generated kernel: computes positions [begin, end) of its outermost loop, whose extent is
/// Command::extent. `buffers` are the operands' and results' first bytes, 64-byte aligned.
/// Reentrant; different ranges may run at the same time.
typedef void (*MpcKernel)(int64_t begin, int64_t end, void *const *buffers);

struct MpcProgram {
  uint32_t abi; ///< MPC_PROGRAM_ABI of the compiler; a runtime refuses any other
  uint32_t kernel_count;
  const char *json; ///< UTF-8, json_size bytes
  uint64_t json_size;
  const MpcKernel *kernels;
  const unsigned char *data; ///< what `Range`s point into; page aligned
  uint64_t data_size;
  /// The device of the program's target. Only this names it, so that only what it needs is linked.
  const mpc::MakeDevice *make_device = nullptr;
};
extern const mpc::MakeDevice mpc_make_cpu_device, mpc_make_cuda_device;
extern const struct MpcProgram mpc_program;
}
#define MPC_PROGRAM_ABI 6u

namespace mpc {

enum class ElementType : uint8_t { f64, f32, bf16, f16, i64, i32, i16, i8, u64, u32, u16, u8, i1 };
size_t elementSize(ElementType type);          ///< bytes; i1 is one byte, 0 or 1
const char *elementTypeName(ElementType type); ///< "f32", …

enum class Region : uint8_t { states, inputs, arena, gradients, accumulators, constants, outputs };
constexpr size_t kRegionCount = 7;
const char *regionName(Region region); ///< "states", …

struct Buffer {
  Region region;
  uint64_t offset; ///< bytes
};

struct Range { ///< of MpcProgram::data
  uint64_t offset = 0, bytes = 0;
};

/// What a tensor of the program is for (docs/architecture.md, "Function arguments").
enum class Role : uint8_t {
  input,
  labels,
  samples,
  random_state,
  hyper,
  schedule,
  weight_decay, // region inputs
  parameter,
  statistic,
  working_statistic,
  optimizer_state,
  half_copy, // region states
  loss_scale,
  growth_tracker,
  applied_steps,
  accumulated_count, // region states
  constant,          // region constants
  gradient,
  accumulator, // regions of those names
  output,
  loss,
  count,
  correct,
  ok,
  grad_norm,
  gradient_square_sums // region outputs
};

/// The few numbers of a step that the training loop looks at: loss, counts, scale, norms, ….
bool isStatistic(Role role);

struct TensorInfo {
  std::string name; ///< the ONNX name; for optimizer_state "exp_avg/NAME", "exp_avg_sq/NAME" or
                    ///< "momentum_buffer/NAME"
  Role role;
  ElementType type;
  std::vector<int64_t> shape;
  Buffer buffer;
  Range
      initial; ///< parameter, statistic, constant: initial value (bytes = 0: none, starts as zeros)
  ElementType initial_type; ///< element type of `initial`, which may differ from `type` (fp64: f32
                            ///< data, f64 state)
  int64_t elements() const;
  size_t bytes() const;
};

enum class CommandKind : uint8_t {
  kernel,
  matmul,
  conv,
  conv_backward_data,
  conv_backward_weights,
  attention, // on a GPU only, as is its gradient
  attention_grad
};

/// An operand of a library command: dense row-major, `shape` as stored (before any transpose flag).
struct Operand {
  Buffer buffer{};
  ElementType type = ElementType::f32;
  std::vector<int64_t> shape;
  bool present = false;
  /// Lives in region states and changes only in `apply`, `refresh` and when weights are loaded: may
  /// be reordered or widened once per change.
  bool is_weight = false;
};

/// A GPU function, launched with Command::buffers as its parameters, and Command::members, if any.
struct GpuFunction {
  std::string symbol;
  uint32_t grid = 1, block = 1; ///< blocks, and threads of each; in x only
  /// Of a library command: runs behind a library that executes it, and the others where none does.
  bool after_library = false;
};

/// One of the kernels that a GPU command executes together: a record of the table that is the last
/// parameter of its functions. Pointers to the buffers, then the words.
struct GroupMember {
  std::vector<Buffer> buffers;
  std::vector<uint32_t> words; ///< an even number of them
  size_t bytes() const { return 8 * buffers.size() + 4 * words.size(); }
};

struct Command {
  CommandKind kind;
  std::string node;            ///< ONNX node(s) it came from, for reports
  std::string name;            ///< the kernel's name, for reports
  double bytes = 0, flops = 0; ///< of all operands and results; of a library command. For reports

  // kernel on the CPU
  uint32_t function = 0; ///< index into MpcProgram::kernels
  int64_t extent = 0;    ///< positions of the outermost loop
  int64_t grain = 1;     ///< least positions worth a thread of their own

  // on a GPU: a kernel, or what executes a library command where no library does; in this order
  std::vector<GpuFunction> functions;
  std::vector<GroupMember> members; ///< a structure by value, behind `buffers`; all of one form

  // kernel; on a GPU of library commands, too: the functions' parameters
  std::vector<Buffer> buffers;

  // matmul: result[b, m, n] = Σ lhs[b, m, k] · rhs[b, k, n] + bias[n]; leading dimensions equal or,
  // for rank 2, absent. conv: lhs = input, rhs = filter, result = output. conv_backward_data: lhs =
  // output gradient, rhs = filter, result = input gradient. conv_backward_weights: lhs = input, rhs
  // = output gradient, result = filter gradient (f32 or f64). Activations [N, C, spatial...], with
  // channels_last [N, spatial..., C]; filters always [M, C/groups, kernel...].
  Operand lhs, rhs, bias, result;
  bool transpose_lhs = false, transpose_rhs = false, relu = false, channels_last = false;
  std::vector<int64_t> strides, pads, dilations; ///< pads: [begin..., end...]
  int64_t groups = 1;

  // attention: operands query [B, M, H, D], key [B, N, H, D], value [B, N, H, E], then a bias (f32)
  // or none, then, where weights are dropped, the random state [2] and the stream [2] (i64);
  // results the output [B, M, H, E], log Σ exp of the scores' rows [B, H, M], f32, and their
  // statistics [2, B, H, M], f32 (mpc.attention).
  // attention_grad: operands output gradient, query, key, value, output, log Σ exp, statistics,
  // then bias, state and stream as there; results the gradients of query, key and value. Dimension
  // i of the bias is dimension bias_dimensions[i] of the scores [B, H, M, N].
  std::vector<Operand> operands, results;
  double scale = 1, dropout_ratio = 0;
  std::vector<int64_t> bias_dimensions;
  bool safe = false; ///< rows of scores with NaN or ∞, or of -∞ alone, give zeros, not NaN
};

bool isAttention(CommandKind kind); ///< attention or its gradient

struct Entry {
  std::vector<uint32_t> arguments, results; ///< indices into Program::tensors
  std::vector<Command> commands;
};

/// Where a trained tensor goes in the exported model.
struct ExportHole {
  uint64_t offset, bytes; ///< of the template
  ElementType type;
  uint32_t tensor;
};

/// Where an output holds the samples: `blocks` times all of them along `axis`.
struct OutputSamples {
  static constexpr int64_t kNone = -1;    ///< the same for the batch as a whole
  static constexpr int64_t kSeveral = -2; ///< along several axes, so that batches do not join
  int64_t axis = kNone, blocks = 1;
};

/// Compiled GPU functions, all of a program.
struct ProgramImage {
  enum class Kind { cubin, ptx, simulator } kind;
  uint32_t architecture = 0; ///< NN of sm_NN
  Range data;
};

struct Program {
  const MpcProgram *raw = nullptr;
  std::string model_name, precision, loss, optimizer, target, cpu, compiler_version;
  std::string loss_scale_mode; ///< "dynamic", "none" or a number
  std::string build_facts;
  int64_t batch = 0;   ///< samples per micro-batch
  int64_t classes = 0; ///< 0: labels are no class indices
  int64_t ignore_index = -100;
  std::string tail_refused_why; ///< empty: a last batch of fewer samples can be trained
  std::map<std::string, int64_t>
      batch_axis; ///< per input (and "labels"): the axis that --batch bound (0 mostly)
  std::map<std::string, OutputSamples> output_samples; ///< of @predict; may lack a name
  std::map<std::string, int64_t> index_limit; ///< per integer input that indexes a table: its valid
                                              ///< indices are [-limit, limit)
  std::vector<std::string> notes;             ///< what was decided about the model
  std::vector<std::string>
      left_out; ///< "NAME: REASON" of the floating-point initializers that are not trained
  std::array<uint64_t, kRegionCount> region_bytes{};
  std::vector<TensorInfo> tensors;
  std::map<std::string, Entry> entries; ///< predict, eval_step, gradients, accumulate, apply,
                                        ///< apply_accumulated, refresh; those that exist
  Range export_template;
  std::vector<ExportHole> export_holes;
  std::vector<ProgramImage> images; ///< of target cuda
  std::string simulator_folder;     ///< of the simulator's libcuda.so.1, with --simulate

  /// Parses `raw->json`. Throws Error for another abi, malformed text, or offsets outside their
  /// regions.
  static Program load(const MpcProgram &raw);
  /// The tensor of that role (and name, where there are several); -1 if there is none.
  int find(Role role, const std::string &name = "") const;
  std::vector<uint32_t> all(Role role) const; ///< in program order
};

} // namespace mpc

#endif // MPC_RUNTIME_CORE_PROGRAM_H

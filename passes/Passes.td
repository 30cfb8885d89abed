//===- Passes.td - the passes of the core level, in pipeline order -------------===//

include "mlir/Pass/PassBase.td"

class MpcModulePass<string flag> : Pass<flag, "::mlir::ModuleOp"> {
  let dependentDialects = ["::mpc::MpcDialect", "::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::func::FuncDialect"];
}

def ConvertOnnxToMpc : MpcModulePass<"convert-onnx-to-mpc"> {
  let summary = "ONNX nodes become core operations; shape arithmetic folds away";
  let description = [{
    Each node is handed to the handler registered for its operator and since-version (compiler/ops/). All nodes that have none, or that their
    handler refuses, are reported at once. `@graph` becomes `@forward`.

    ```mlir
    %2 = onnx.node "Gemm" 13 "fc" (%x, %w, %b) {transB = 1 : i64} : …
    // becomes
    %2 = mpc.matmul %x, %w {transpose_rhs} : (tensor<64x784xf32>, tensor<512x784xf32>) -> tensor<64x512xf32>
    %3 = mpc.broadcast %b {dimensions = [1]} : tensor<512xf32> -> tensor<64x512xf32>
    %4 = arith.addf %2, %3 : tensor<64x512xf32>
    ```
  }];
}

def RaisePatterns : MpcModulePass<"raise-patterns"> {
  let summary = "Recognize linear with bias, GELU and layer normalization where exporters wrote them out";
  let description = [{
    `matmul + broadcast(bias)` becomes `matmul … bias`; GELU by erf or tanh becomes `mpc.gelu`; mean, variance and scale over the last dimensions
    become `mpc.layer_norm`. Only exact matches: a value with another use stays.
  }];
}

def PrepareTraining : MpcModulePass<"prepare-training"> {
  let summary = "@forward in training mode beside @predict in inference mode";
  let description = [{
    Clones @forward to @predict, where dropout disappears and batch_norm_inference stays. In @forward every batch_norm_inference is re-armed as
    batch_norm over the true number of samples, and the running statistics are updated in a working copy:

    ```mlir
    %y = mpc.batch_norm_inference %x, %scale, %bias, %mean, %var {…}
    // becomes
    %y, %m, %v = mpc.batch_norm %x, %scale, %bias, %samples {…}
    return …, %wm', %wv'      // momentum · working + (1 - momentum) · batch, tied to the arguments of role "working_statistic"
    ```
    Adds the arguments `samples` and, where an operator is random, `random_state`. Where --freeze names a scale, bias or statistic (the importer's
    attribute `mpc.frozen` on the argument), the node stays as it is.
  }];
}

def AttachLoss : MpcModulePass<"attach-loss"> {
  let summary = "The loss on @forward's output; @eval_step on @predict's";
  let description = [{
    Adds the argument `labels`. @forward then returns loss and count (and the working statistics), @eval_step returns loss, count and correct (how many
    labels are the largest logit, -1 where labels are no classes).
  }];
  let options = [
    Option<"loss", "loss", "std::string", "\"cross-entropy\"", "cross-entropy, nll, mse, l1, smooth-l1, bce, bce-with-logits, output or none">,
    Option<"lossInput", "loss-input", "std::string", "", "The output, or result of role loss_input, that the loss reads (the first floating-point output)">,
    Option<"classAxis", "class-axis", "int64_t", "-1000", "Axis of the classes (1; the last for outputs of rank 3)">,
    Option<"ignoreIndex", "ignore-index", "int64_t", "-100", "Label left out of the loss and its mean">];
}

def AssignPrecision : MpcModulePass<"assign-precision"> {
  let summary = "What is stored becomes f16, bf16 or f64; casts are explicit";
  let description = [{
    Classes by ONNX operator: passes/PrecisionTable.cpp. The half operands of an H operation are rounded (arith.truncf), elementwise operations compute in f32
    between arith.extf and arith.truncf. With fp64 every float type becomes f64, arguments included.
  }];
  let options = [
    Option<"precision", "precision", "std::string", "\"fp16\"", "fp16, bf16, fp32 or fp64">,
    ListOption<"keepFp32", "keep-fp32", "std::string", "POSIX regular expressions of node or tensor names that stay fp32">,
    ListOption<"allowHalf", "allow-half", "std::string", "POSIX regular expressions of node or tensor names that become half">,
    Option<"report", "report", "bool", "false", "Print the decision and its reason per node">];
}

def RaiseAttention : MpcModulePass<"raise-attention"> {
  let summary = "For a GPU: attention that is written out becomes one operation";
  let description = [{
    Only with --target=cuda. Behind assign-precision, so that nodes have the same class on every target; in front of autodiff, whose gradient computes the
    weights again.

    ```mlir
    %s = mpc.matmul %q, %k {transpose_rhs}          // [B, H, M, N]
    %p = mpc.softmax (%s · c + %mask)
    %w = mpc.dropout %p, %state                     // or %p itself
    %o = mpc.matmul %w, %v
    // becomes, with the heads between tokens and channels
    %o, %l, %statistics = mpc.attention %q', %k', %v' bias %mask dropout %state, %stream {scale = c}
    ```
  }];
}

def Autodiff : MpcModulePass<"autodiff"> {
  let summary = "Reverse mode: @forward becomes @gradients";
  let description = [{
    @gradients has @forward's arguments and `seed` (the cotangent of the loss) and returns loss, count, working statistics and one f32 gradient per parameter.
    The adjoint of a parameter passes its casts, transposes and reshapes in f32; all its uses are summed once. Gradients that nobody wants are not built.
  }];
}

def InsertLossScaling : MpcModulePass<"insert-loss-scaling"> {
  let summary = "Scale the seed; @apply unscales, checks and moves the scale";
  let description = [{
    ```mlir
    @gradients(…, %scale)                 seed = scale
    @apply(%g…, %scale, %tracker, …):
      %sumsq_i = reduce sum (f64(g_i)²)            one reading of each gradient
      %ok      = every sum, the loss and the new statistics are finite
      %factor  = min(1, clip / (√Σ sumsq / (scale·weight) + 1e-6)) / (scale·weight)
      %scale', %tracker' = ok ? (tracker + 1 = interval ? 2·scale if finite : scale) : max(scale / 2, 1)
    ```
  }];
  let options = [Option<"mode", "mode", "std::string", "\"dynamic\"", "dynamic, none, or the constant scale">];
}

def InsertOptimizer : MpcModulePass<"insert-optimizer"> {
  let summary = "Updates of masters and moments in @apply; @accumulate; half copies and @refresh";
  let options = [Option<"optimizer", "optimizer", "std::string", "\"adamw\"", "sgd, sgd-nesterov, adam or adamw">];
}

def AssignLayout : MpcModulePass<"assign-layout"> {
  let summary = "Channels-last convolutions; transposes move to where they cost least";
}

def ExpandComposites : MpcModulePass<"expand-composites"> {
  let summary = "Norms, softmax, losses and updates become primitive operations, by ExpandableOpInterface";
}

def PrepareGroups : MpcModulePass<"prepare-groups"> {
  let summary = "For a GPU: a scalar per parameter is an element of a table, or part of the parameter's update";
  let description = [{
    Only with --target=cuda. Marks @apply, @apply_accumulated and @accumulate with `mpc.grouped` and takes out of them what grows with the number of
    parameters, so that equal work on all parameters is one launch (docs/cuda.md):

    ```mlir
    %t = %s0 + %s1 + …                     // the sums of squares
    // becomes
    %table = mpc.concat %s0, %s1, … {mpc.table}
    %t = mpc.reduce sum %table
    ```
    likewise the finite checks of the running statistics, by the largest magnitude of all; and AdamW's 1 - lr·decay is computed element by element,
    where the update reads it. One scalar stays as it is, and so do sums that are not added up one after the other.
  }];
}

def FuseMultiplyAdd : MpcModulePass<"fuse-multiply-add"> {
  let summary = "A product that one sum alone reads becomes part of it";
  let description = [{
    An f32 or f64 product whose only reader adds it, subtracts it or subtracts from it is not
    rounded (math.fma), unless the other operand is a product too, or a square is subtracted. No other operation may be contracted, but for products that only sums of
    `mpc.reduce` read: a tensor has the same value wherever it is computed again.
  }];
  let dependentDialects = ["::mlir::math::MathDialect"];
}

def PlaceRoundings : MpcModulePass<"place-roundings"> {
  let summary = "Keep the rounding of values that are stored, drop it inside a cluster";
}

def Fuse : MpcModulePass<"fuse"> {
  let summary = "Clusters of elementwise operations, index maps and reductions become kernels";
}

def Plan : MpcModulePass<"plan"> {
  let summary = "A region and an offset for every value";
  let options = [Option<"target", "target", "std::string", "\"cpu\"", "cpu or cuda: who runs the kernels, which tells the scratch of their launches">];
}

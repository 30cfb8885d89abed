//===- ReductionOps.td - reductions, softmax and the losses over classes ----===//

def Mpc_ReductionKind : I32EnumAttr<"ReductionKind", "", [
    I32EnumAttrCase<"sum", 0>, I32EnumAttrCase<"max", 1>, I32EnumAttrCase<"min", 2>, I32EnumAttrCase<"product", 3>]> {
  let cppNamespace = "::mpc";
  let genSpecializedAttr = 0;
}
def Mpc_ReductionKindAttr : EnumAttr<Mpc_Dialect, Mpc_ReductionKind, "reduction">;

def Mpc_ReduceOp : Mpc_Op<"reduce", [Pure, DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Reduce over `axes`, which disappear; max and min keep NaN";
  let description = [{
    The accumulator is f32 for halves and f32, f64 for f64 and for a result of type f64. A sum's result may be wider than its operand.
    ```mlir
    %1 = mpc.reduce sum %0 {axes = [0]} : tensor<64x512xf16> -> tensor<512xf32>
    ```
  }];
  let arguments = (ins Mpc_ReductionKindAttr:$kind, AnyRankedTensor:$input, DenseI64ArrayAttr:$axes);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$kind $input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Mpc_MaskSamplesOp : Mpc_Op<"mask_samples", [Pure, AllTypesMatch<["input", "result"]>, DeclareOpInterfaceMethods<DifferentiableOpInterface>, DeclareOpInterfaceMethods<ExpandableOpInterface>]> {
  let summary = "Zero for the samples that are not there, or another reduction's neutral element";
  let description = [{
    A batch may hold fewer than N samples: `samples` (tensor<i64>, read from memory) of them. Dimension `axis` of `input` holds
    `factor` consecutive rows per sample; rows ≥ samples · factor become what `neutral` ignores: 0 (sum), 1 (product), the lowest (max) or
    largest (min) value of the type. With `keep` they stay as they are: then the operation only says where
    the samples are in numbers that the model made for a whole batch.
    ```mlir
    %1 = mpc.mask_samples %0, %n {axis = 0 : i64, factor = 1 : i64} : tensor<64x10xf32>, tensor<i64>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$input, AnyRankedTensor:$samples, I64Attr:$axis, I64Attr:$factor,
                       DefaultValuedAttr<Mpc_ReductionKindAttr, "::mpc::ReductionKind::sum">:$neutral,
                       UnitAttr:$keep);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$input `,` $samples attr-dict `:` type($input) `,` type($samples)";
}

def Mpc_CumSumOp : Mpc_Op<"cumsum", [Pure, SameOperandsAndResultType, DeclareOpInterfaceMethods<DifferentiableOpInterface>,
                                    DeclareOpInterfaceMethods<ExpandableOpInterface>]> {
  let summary = "Sums of the elements up to each one along `axis`";
  let description = [{
    result[i] = Σ input[j] over j ≤ i; over j < i if `exclusive`; over j ≥ i (j > i) if `reverse`. The primitive form is a sum under a mask, in f32
    for halves: work grows with the square of the axis' size, memory does not.
    ```mlir
    %1 = mpc.cumsum %0 {axis = 1 : i64, exclusive} : tensor<8x16xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$input, I64Attr:$axis, UnitAttr:$exclusive, UnitAttr:$reverse);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

class Mpc_SoftmaxLike<string mnemonic, list<Trait> traits = []>
    : Mpc_Op<mnemonic, !listconcat([Pure, DeclareOpInterfaceMethods<ExpandableOpInterface>], traits)> {
  let results = (outs AnyRankedTensor:$result);
}
def Mpc_SoftmaxOp : Mpc_SoftmaxLike<"softmax", [SameOperandsAndResultType, DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "exp(x - max) / Σ exp(x - max) over `axis`; with `safe` 0 where x is -∞ along the whole axis, which is NaN without";
  let arguments = (ins AnyRankedTensor:$input, I64Attr:$axis, UnitAttr:$safe);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}
def Mpc_SoftmaxGradOp : Mpc_SoftmaxLike<"softmax_grad"> {
  let summary = "y · (dy - Σ dy · y)";
  let arguments = (ins AnyRankedTensor:$output_gradient, AnyRankedTensor:$output, I64Attr:$axis);
  let assemblyFormat = "$output_gradient `,` $output attr-dict `:` functional-type(operands, results)";
}
def Mpc_LogSoftmaxOp : Mpc_SoftmaxLike<"log_softmax", [SameOperandsAndResultType, DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "x - max - log Σ exp(x - max) over `axis`";
  let arguments = (ins AnyRankedTensor:$input, I64Attr:$axis);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}
def Mpc_LogSoftmaxGradOp : Mpc_SoftmaxLike<"log_softmax_grad"> {
  let summary = "dy - exp(y) · Σ dy";
  let arguments = (ins AnyRankedTensor:$output_gradient, AnyRankedTensor:$output, I64Attr:$axis);
  let assemblyFormat = "$output_gradient `,` $output attr-dict `:` functional-type(operands, results)";
}

// The class-label losses: logits (or log-probabilities) with classes on `class_axis`, integer labels without that axis.
def Mpc_CrossEntropyOp : Mpc_Op<"cross_entropy", [Pure, DeclareOpInterfaceMethods<DifferentiableOpInterface>, DeclareOpInterfaceMethods<ExpandableOpInterface>]> {
  let summary = "Mean over the labels that count of -log softmax(logits)[label], and how many count";
  let description = [{
    `loss` (f32 scalar; f64 for f64 logits) is 0 where no label counts. `count` (same type): labels ≠ ignore_index in the first `samples` samples.
    `log_probabilities`: the operand already holds log-probabilities (nll). Rows of labels: `factor` per sample, as in mask_samples on axis 0.
    The gradient is one reading of the logits: (softmax - onehot) · seed / count.
  }];
  let arguments = (ins AnyRankedTensor:$logits, AnyRankedTensor:$labels, AnyRankedTensor:$samples,
                       I64Attr:$class_axis, I64Attr:$ignore_index, UnitAttr:$log_probabilities,
                       DefaultValuedAttr<I64Attr, "1">:$factor);
  let results = (outs AnyRankedTensor:$loss, AnyRankedTensor:$count);
  let assemblyFormat = "$logits `,` $labels `,` $samples attr-dict `:` functional-type(operands, results)";
}
def Mpc_CrossEntropyGradOp : Mpc_Op<"cross_entropy_grad", [Pure, DeclareOpInterfaceMethods<ExpandableOpInterface>]> {
  let summary = "Gradient with respect to the logits; `seed` is the cotangent of the loss, `count` the forward's";
  let arguments = (ins AnyRankedTensor:$seed, AnyRankedTensor:$logits, AnyRankedTensor:$labels, AnyRankedTensor:$samples, AnyRankedTensor:$count,
                       I64Attr:$class_axis, I64Attr:$ignore_index, UnitAttr:$log_probabilities,
                       DefaultValuedAttr<I64Attr, "1">:$factor);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

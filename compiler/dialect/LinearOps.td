//===- LinearOps.td - matrix products and convolutions (library calls) -----===//

def Mpc_MatmulOp : Mpc_Op<"matmul", [Pure, DeclareOpInterfaceMethods<DifferentiableOpInterface>, DeclareOpInterfaceMethods<CostOpInterface>]> {
  let summary = "Matrix product with f32 accumulation and one rounding";
  let description = [{
    result[..., m, n] = Σk lhs[..., m, k] · rhs[..., k, n] (+ bias[n]), the last two dimensions of an operand swapped where its transpose
    flag is set. Leading (batch) dimensions of lhs, rhs and result are equal. The accumulator is f32 (f64 for f64 operands); the result
    element type is the operands' type or f32. `bias`, of the operands' type, is added before the one rounding. `relu`: the library applies
    max(x, 0) in the epilogue (set by fuse; never for f16).

    ```mlir
    %y = mpc.matmul %x, %w bias %b {transpose_rhs} : (tensor<64x784xf16>, tensor<512x784xf16>, tensor<512xf16>) -> tensor<64x512xf16>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$lhs, AnyRankedTensor:$rhs, Optional<AnyRankedTensor>:$bias,
                       UnitAttr:$transpose_lhs, UnitAttr:$transpose_rhs, UnitAttr:$relu);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$lhs `,` $rhs (`bias` $bias^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let hasCanonicalizer = 1;
}

// Spatial parameters that all convolutions share, one entry per spatial dimension; pads: [begin..., end...] as in ONNX.
class Mpc_ConvolutionOp<string mnemonic, list<Trait> traits = []>
    : Mpc_Op<mnemonic, !listconcat([Pure, DeclareOpInterfaceMethods<CostOpInterface>], traits)> {
  dag convAttributes = (ins DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pads, DenseI64ArrayAttr:$dilations,
                            DefaultValuedAttr<I64Attr, "1">:$groups, UnitAttr:$channels_last);
}

def Mpc_ConvOp : Mpc_ConvolutionOp<"conv", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Convolution with f32 accumulation and one rounding";
  let description = [{
    input [N, C, spatial...] ([N, spatial..., C] with channels_last), filter [M, C/groups, kernel...] always, bias [M]; the result is laid out like the input.
  }];
  let arguments = !con((ins AnyRankedTensor:$input, AnyRankedTensor:$filter, Optional<AnyRankedTensor>:$bias), convAttributes, (ins UnitAttr:$relu));
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$input `,` $filter (`bias` $bias^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Mpc_ConvBackwardDataOp : Mpc_ConvolutionOp<"conv_backward_data", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Gradient of a convolution with respect to its input (also: a transposed convolution)";
  let arguments = !con((ins AnyRankedTensor:$output_gradient, AnyRankedTensor:$filter), convAttributes);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$output_gradient `,` $filter attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Mpc_ConvBackwardWeightsOp : Mpc_ConvolutionOp<"conv_backward_weights"> {
  let summary = "Gradient of a convolution with respect to its filter, f32 whatever the operands";
  let arguments = !con((ins AnyRankedTensor:$input, AnyRankedTensor:$output_gradient), convAttributes);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$input `,` $output_gradient attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

//===- PoolOps.td - window operations ----------------------------------------===//

class Mpc_PoolOp<string mnemonic, list<Trait> traits = []> : Mpc_Op<mnemonic, !listconcat([Pure], traits)> {
  // One entry per spatial dimension; pads as in ONNX, after auto_pad; the result's shape tells ceil_mode.
  dag poolAttributes = (ins DenseI64ArrayAttr:$kernel, DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pads, DenseI64ArrayAttr:$dilations, UnitAttr:$channels_last);
}
def Mpc_MaxPoolOp : Mpc_PoolOp<"max_pool", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Maximum of each window; NaN stays. `index`: the winner's place in the window, the first in row-major order of ties (i8 for windows of up to 255 elements, else i32)";
  let arguments = !con((ins AnyRankedTensor:$input), poolAttributes);
  let results = (outs AnyRankedTensor:$result, AnyRankedTensor:$index);
  let assemblyFormat = "$input attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
def Mpc_MaxPoolGradOp : Mpc_PoolOp<"max_pool_grad"> {
  let summary = "Every element gets the sum of the gradients of the windows it won";
  let arguments = !con((ins AnyRankedTensor:$output_gradient, AnyRankedTensor:$index), poolAttributes);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$output_gradient `,` $index attr-dict `:` functional-type(operands, results)";
}
def Mpc_AveragePoolOp : Mpc_PoolOp<"average_pool", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Mean of each window, f32 inside; the divisor counts cells inside the input, or with count_include_pad inside input and pads";
  let arguments = !con((ins AnyRankedTensor:$input), poolAttributes, (ins UnitAttr:$count_include_pad));
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$input attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
def Mpc_AveragePoolGradOp : Mpc_PoolOp<"average_pool_grad"> {
  let summary = "Every element gets the sum over its windows of gradient / divisor";
  let arguments = !con((ins AnyRankedTensor:$output_gradient), poolAttributes, (ins UnitAttr:$count_include_pad));
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$output_gradient attr-dict `:` functional-type(operands, results)";
}

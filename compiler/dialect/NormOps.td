//===- NormOps.td - normalizations: half in and out, f32 inside -------------===//

def Mpc_LayerNormOp : Mpc_Op<"layer_norm", [Pure, DeclareOpInterfaceMethods<DifferentiableOpInterface>, DeclareOpInterfaceMethods<ExpandableOpInterface>]> {
  let summary = "Normalize over the dimensions from `axis` on; saved mean and reciprocal standard deviation (f32)";
  let description = [{ mean and rstd have the shape of the dimensions before `axis`. scale and bias have the shape of those from it on. Variance in two passes. }];
  let arguments = (ins AnyRankedTensor:$input, AnyRankedTensor:$scale, Optional<AnyRankedTensor>:$bias, I64Attr:$axis, F64Attr:$epsilon);
  let results = (outs AnyRankedTensor:$result, AnyRankedTensor:$mean, AnyRankedTensor:$rstd);
  let assemblyFormat = "$input `,` $scale (`bias` $bias^)? attr-dict `:` functional-type(operands, results)";
}
def Mpc_LayerNormGradOp : Mpc_Op<"layer_norm_grad", [Pure, DeclareOpInterfaceMethods<ExpandableOpInterface>]> {
  let summary = "Gradients of layer_norm: input (its type), scale and bias (f32)";
  let arguments = (ins AnyRankedTensor:$output_gradient, AnyRankedTensor:$input, AnyRankedTensor:$scale, AnyRankedTensor:$mean, AnyRankedTensor:$rstd, I64Attr:$axis);
  let results = (outs AnyRankedTensor:$input_gradient, AnyRankedTensor:$scale_gradient, AnyRankedTensor:$bias_gradient);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

def Mpc_BatchNormOp : Mpc_Op<"batch_norm", [Pure, DeclareOpInterfaceMethods<DifferentiableOpInterface>, DeclareOpInterfaceMethods<ExpandableOpInterface>]> {
  let summary = "Training-mode batch normalization: statistics over the first `samples` samples, biased variance in two passes";
  let arguments = (ins AnyRankedTensor:$input, AnyRankedTensor:$scale, AnyRankedTensor:$bias, AnyRankedTensor:$samples,
                       F64Attr:$epsilon, UnitAttr:$channels_last);
  let results = (outs AnyRankedTensor:$result, AnyRankedTensor:$mean, AnyRankedTensor:$variance);
  let description = [{ Channels on axis 1, on the last with channels_last. scale, bias, mean, variance: [C], f32. Rows of samples that are not there are normalized too, but count nowhere. }];
  let assemblyFormat = "$input `,` $scale `,` $bias `,` $samples attr-dict `:` functional-type(operands, results)";
}
def Mpc_BatchNormGradOp : Mpc_Op<"batch_norm_grad", [Pure, DeclareOpInterfaceMethods<ExpandableOpInterface>]> {
  let summary = "Gradients of batch_norm: input (its type; zero for samples that are not there), scale and bias (f32)";
  let arguments = (ins AnyRankedTensor:$output_gradient, AnyRankedTensor:$input, AnyRankedTensor:$scale, AnyRankedTensor:$mean, AnyRankedTensor:$variance,
                       AnyRankedTensor:$samples, F64Attr:$epsilon, UnitAttr:$channels_last);
  let results = (outs AnyRankedTensor:$input_gradient, AnyRankedTensor:$scale_gradient, AnyRankedTensor:$bias_gradient);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}
def Mpc_BatchNormInferenceOp : Mpc_Op<"batch_norm_inference", [Pure, DeclareOpInterfaceMethods<DifferentiableOpInterface>, DeclareOpInterfaceMethods<ExpandableOpInterface>]> {
  let summary = "(x - mean) / √(variance + ε) · scale + bias. The ONNX conversion makes this one; prepare-training re-arms it in @forward";
  let description = [{ `momentum` is ONNX's: running = running · momentum + batch · (1 - momentum). `training`: the ONNX node says training_mode = 1. }];
  let arguments = (ins AnyRankedTensor:$input, AnyRankedTensor:$scale, AnyRankedTensor:$bias, AnyRankedTensor:$mean, AnyRankedTensor:$variance,
                       F64Attr:$epsilon, F64Attr:$momentum, UnitAttr:$training, UnitAttr:$channels_last);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

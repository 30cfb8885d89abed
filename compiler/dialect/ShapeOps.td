//===- ShapeOps.td - index maps: no arithmetic, no rounding -----------------===//

class Mpc_ViewOp<string mnemonic, list<Trait> traits = []>
    : Mpc_Op<mnemonic, !listconcat([Pure, DeclareOpInterfaceMethods<DifferentiableOpInterface>], traits)> {
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Mpc_BroadcastOp : Mpc_ViewOp<"broadcast"> {
  let summary = "Repeat a tensor along new dimensions";
  let description = [{
    `dimensions[i]` is the result dimension that operand dimension i becomes (strictly increasing, sizes equal); all others are new.
    A dimension of size 1 that is to be stretched is dropped by a reshape first, so that the gradient is one reduction.
    ```mlir
    %1 = mpc.broadcast %bias {dimensions = [1]} : tensor<512xf32> -> tensor<64x512xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$input, DenseI64ArrayAttr:$dimensions);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
}

def Mpc_ReshapeOp : Mpc_ViewOp<"reshape"> {
  let summary = "The same elements in row-major order, another shape";
  let arguments = (ins AnyRankedTensor:$input);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
}

def Mpc_TransposeOp : Mpc_ViewOp<"transpose"> {
  let summary = "result.shape[i] = input.shape[permutation[i]], as in ONNX";
  let arguments = (ins AnyRankedTensor:$input, DenseI64ArrayAttr:$permutation);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
}

def Mpc_SliceOp : Mpc_ViewOp<"slice"> {
  let summary = "result[i...] = input[starts + i · steps], steps may be negative";
  let arguments = (ins AnyRankedTensor:$input, DenseI64ArrayAttr:$starts, DenseI64ArrayAttr:$steps);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
}

def Mpc_PadOp : Mpc_ViewOp<"pad"> {
  let summary = "Surround with `value`; negative amounts crop; `interior` puts that many values between neighbours";
  let arguments = (ins AnyRankedTensor:$input, AnyTypeOf<[AnyFloat, AnyInteger]>:$value,
                       DenseI64ArrayAttr:$low, DenseI64ArrayAttr:$high, DenseI64ArrayAttr:$interior);
  let description = [{ result.shape = low + input.shape + (input.shape - 1) · interior + high. `value` is a scalar constant of the element type. }];
  let assemblyFormat = "$input `,` $value attr-dict `:` type($input) `,` type($value) `->` type($result)";
}

def Mpc_ConcatOp : Mpc_ViewOp<"concat"> {
  let summary = "Join along `axis`";
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs, I64Attr:$axis);
  let assemblyFormat = "$inputs attr-dict `:` functional-type($inputs, $result)";
}

def Mpc_IotaOp : Mpc_Op<"iota", [Pure]> {
  let summary = "result[..., i, ...] = i along `axis` (integer element type)";
  let arguments = (ins I64Attr:$axis);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def Mpc_GatherOp : Mpc_ViewOp<"gather"> {
  let summary = "result[a..., i..., b...] = input[a..., indices[i...], b...] as in ONNX Gather";
  let description = [{ Indices are in [0, size): the conversion adds the size to negative ones. An index outside reads the nearest element; the
    trainer checks index inputs when it reads them, so that this is never silently used. }];
  let arguments = (ins AnyRankedTensor:$input, AnyRankedTensor:$indices, I64Attr:$axis);
  let assemblyFormat = "$input `,` $indices attr-dict `:` type($input) `,` type($indices) `->` type($result)";
}

def Mpc_ScatterAddOp : Mpc_Op<"scatter_add", [Pure, DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "The gradient of gather: result = init + Σ updates at indices along `axis`, in index order (deterministic)";
  let description = [{ result has init's type; without init it starts from zero. The sum is in the result's element type (f32, or f64). }];
  let arguments = (ins AnyRankedTensor:$indices, AnyRankedTensor:$updates, Optional<AnyRankedTensor>:$init, I64Attr:$axis);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$indices `,` $updates (`init` $init^)? attr-dict `:` functional-type(operands, $result)";
  let hasVerifier = 1;
}

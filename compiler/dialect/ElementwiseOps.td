//===- ElementwiseOps.td - pointwise operations that arith and math lack ----===//
//
// Everything else pointwise is arith/math on tensors. These stay whole up to
// expand-composites because their class or derivative is better than their parts'.
//
//===----------------------------------------------------------------------===//

class Mpc_UnaryOp<string mnemonic, list<Trait> traits = []>
    : Mpc_Op<mnemonic, !listconcat([Pure, Elementwise, SameOperandsAndResultType,
                                    DeclareOpInterfaceMethods<DifferentiableOpInterface>,
                                    DeclareOpInterfaceMethods<ExpandableOpInterface>], traits)> {
  let arguments = (ins AnyRankedTensor:$input);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

def Mpc_SigmoidOp : Mpc_UnaryOp<"sigmoid"> { let summary = "1 / (1 + exp(-x)), without overflow"; }
def Mpc_SoftplusOp : Mpc_UnaryOp<"softplus"> { let summary = "log(1 + exp(x)), without overflow"; }
def Mpc_GeluOp : Mpc_UnaryOp<"gelu"> {
  let summary = "x · Φ(x), by erf or by tanh (`approximate`)";
  let arguments = (ins AnyRankedTensor:$input, UnitAttr:$approximate);
}
def Mpc_StopGradientOp : Mpc_UnaryOp<"stop_gradient"> {
  let summary = "x itself, with a derivative of 0";
  let description = [{
    A value that differentiation takes for a constant. With it a function gets a derivative of its own: `stop(f) + stop(d) · (x - stop(x))` is f, and its
    derivative by x is d.
  }];
}

def Mpc_RandomUniformOp : Mpc_Op<"random_uniform", [Pure]> {
  let summary = "Philox4x32-10 numbers in [0, 1), a function of position";
  let description = [{
    Element i (row-major index in the result's shape) is word i mod 4 of Philox4x32-10 with key = (low word of state[0] xor `seed`, `operator_id`) and
    counter = (i div 4, state[1]), as (word >> 8) · 2^-24. `state` is tensor<2xi64>: the run's seed and the number of micro-batches run so far.
    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
  }];
  let arguments = (ins AnyRankedTensor:$state, I64Attr:$operator_id, I64Attr:$seed);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$state attr-dict `:` type($state) `->` type($result)";
}

def Mpc_DropoutOp : Mpc_Op<"dropout", [Pure, DeclareOpInterfaceMethods<DifferentiableOpInterface>, DeclareOpInterfaceMethods<ExpandableOpInterface>]> {
  let summary = "Zero with probability `ratio`, else x / (1 - ratio); the mask is computed again in backward, not stored";
  let arguments = (ins AnyRankedTensor:$input, AnyRankedTensor:$state, F64Attr:$ratio, I64Attr:$operator_id, I64Attr:$seed);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$input `,` $state attr-dict `:` type($input) `,` type($state) `->` type($result)";
}

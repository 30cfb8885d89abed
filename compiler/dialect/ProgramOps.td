//===- ProgramOps.td - optimizer updates and kernel launches -----------------===//

// Updates of one parameter. All results are tied to the operand of the same name. `gradient` is multiplied by `factor` (tensor<f32>: unscale and
// clip in one); where `ok` (tensor<i1>) is false every result keeps its old bits. `row` is tensor<4xf32>: lr, lr/(1-β₁^k), √(1-β₂^k), 1 - lr·weight_decay.
// `hyper` is tensor<8xf32>: momentum or β₁, β₂, ε, then unused. `decay` (tensor<f32>): the parameter's weight decay.
class Mpc_UpdateOp<string mnemonic> : Mpc_Op<mnemonic, [Pure, DeclareOpInterfaceMethods<ExpandableOpInterface>]>;

def Mpc_SgdUpdateOp : Mpc_UpdateOp<"sgd_update"> {
  let summary = "PyTorch's SGD: g += decay·w; m = momentum·m + g; w -= lr·(nesterov ? g + momentum·m : m)";
  let arguments = (ins AnyRankedTensor:$parameter, AnyRankedTensor:$momentum, AnyRankedTensor:$gradient, AnyRankedTensor:$factor, AnyRankedTensor:$ok,
                       AnyRankedTensor:$row, AnyRankedTensor:$hyper, AnyRankedTensor:$decay, UnitAttr:$nesterov);
  let results = (outs AnyRankedTensor:$new_parameter, AnyRankedTensor:$new_momentum);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}
def Mpc_AdamUpdateOp : Mpc_UpdateOp<"adam_update"> {
  let summary = "PyTorch's Adam (L2 decay) or AdamW (`decoupled`: w is first multiplied by 1 - lr·decay)";
  let arguments = (ins AnyRankedTensor:$parameter, AnyRankedTensor:$exp_avg, AnyRankedTensor:$exp_avg_sq, AnyRankedTensor:$gradient, AnyRankedTensor:$factor,
                       AnyRankedTensor:$ok, AnyRankedTensor:$row, AnyRankedTensor:$hyper, AnyRankedTensor:$decay, UnitAttr:$decoupled);
  let results = (outs AnyRankedTensor:$new_parameter, AnyRankedTensor:$new_exp_avg, AnyRankedTensor:$new_exp_avg_sq);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

def Mpc_LaunchOp : Mpc_Op<"launch", [Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Run a fused kernel";
  let description = [{
    ```mlir
    %1:2 = mpc.launch @k3(%x, %w) : (tensor<64x512xf32>, tensor<512xf32>) -> (tensor<64x512xf16>, tensor<64xf32>)
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel, Variadic<AnyRankedTensor>:$inputs);
  let results = (outs Variadic<AnyRankedTensor>);
  let assemblyFormat = "$kernel `(` $inputs `)` attr-dict `:` functional-type($inputs, results)";
}

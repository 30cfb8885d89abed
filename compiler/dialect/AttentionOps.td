//===- AttentionOps.td - fused attention (a library call) --------------------===//

// Operands and results are dense, with the heads between tokens and channels, as projections make them: query [B, M, H, D], key [B, N, H, D],
// value [B, N, H, E]. The scores [B, H, M, N] are never stored.
class Mpc_AttentionLike<string mnemonic, list<Trait> traits = []>
    : Mpc_Op<mnemonic, !listconcat([Pure, DeclareOpInterfaceMethods<CostOpInterface>], traits)> {
  dag attentionAttributes = (ins F32Attr:$scale, DenseI64ArrayAttr:$bias_dimensions);
}

def Mpc_AttentionOp : Mpc_AttentionLike<"attention", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "softmax(scale · query · keyᵀ + bias) · value without the scores in memory; log Σ exp of the scores' rows (f32)";
  let description = [{
    Per batch b and head h, all in f32 but for one rounding of the result:

    ```
    s[m, n]            = scale · Σd query[b, m, h, d] · key[b, n, h, d] + bias
    log_sum_exp[b,h,m] = log Σn exp(s[m, n])
    result[b, m, h, e] = Σn exp(s[m, n] - log_sum_exp[b,h,m]) · value[b, n, h, e]
    ```
    `bias` is f32: what mpc.broadcast with `bias_dimensions` would repeat to the scores. Of halves the weights exp(…) may be rounded to the operands' type before
    they are multiplied. A row of scores with NaN or ∞, or of -∞ alone, gives NaN (of -∞ alone by a library perhaps equal weights). Beside a bias finite scores
    below -100000 count as that, so that f32 holds log_sum_exp of a row that a mask of -1e9 leaves nothing of. Only raise-attention makes it, and only for a GPU.

    ```mlir
    %o, %l = mpc.attention %q, %k, %v bias %mask {scale = 1.250000e-01 : f32, bias_dimensions = array<i64: 0, 3>}
      : (tensor<8x64x2x64xf16>, tensor<8x64x2x64xf16>, tensor<8x64x2x64xf16>, tensor<8x64xf32>) -> (tensor<8x64x2x64xf16>, tensor<8x2x64xf32>)
    ```
  }];
  let arguments = !con((ins AnyRankedTensor:$query, AnyRankedTensor:$key, AnyRankedTensor:$value, Optional<AnyRankedTensor>:$bias), attentionAttributes);
  let results = (outs AnyRankedTensor:$result, AnyRankedTensor:$log_sum_exp);
  let assemblyFormat = "$query `,` $key `,` $value (`bias` $bias^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Mpc_AttentionGradOp : Mpc_AttentionLike<"attention_grad"> {
  let summary = "Gradients of attention: query, key and value; the weights are computed again";
  let description = [{
    With p = exp(s - log_sum_exp), dp = output_gradient · valueᵀ and ds = p · (dp - Σe output_gradient · output):
    query_gradient = scale · ds · key, key_gradient = scale · dsᵀ · query, value_gradient = pᵀ · output_gradient. The bias gets none.
  }];
  let arguments = !con((ins AnyRankedTensor:$output_gradient, AnyRankedTensor:$query, AnyRankedTensor:$key, AnyRankedTensor:$value,
                            AnyRankedTensor:$output, AnyRankedTensor:$log_sum_exp, Optional<AnyRankedTensor>:$bias), attentionAttributes);
  let results = (outs AnyRankedTensor:$query_gradient, AnyRankedTensor:$key_gradient, AnyRankedTensor:$value_gradient);
  let assemblyFormat = "$output_gradient `,` $query `,` $key `,` $value `,` $output `,` $log_sum_exp (`bias` $bias^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

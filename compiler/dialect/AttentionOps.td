//===- AttentionOps.td - fused attention (a library call) --------------------===//

// Operands and results are dense, with the heads between tokens and channels, as projections make them: query [B, M, H, D], key [B, N, H, D],
// value [B, N, H, E]. The scores [B, H, M, N] are never stored. With `state` the weights have dropout, that of
// mpc.dropout on [B, H, M, N]: `stream` is its operator_id and seed (tensor<2xi64>; no attributes, so that the layers of a model share their code).
class Mpc_AttentionLike<string mnemonic, list<Trait> traits = []>
    : Mpc_Op<mnemonic, !listconcat([Pure, AttrSizedOperandSegments, DeclareOpInterfaceMethods<CostOpInterface>], traits)> {
  dag attentionExtras = (ins Optional<AnyRankedTensor>:$bias, Optional<AnyRankedTensor>:$state, Optional<AnyRankedTensor>:$stream, F32Attr:$scale, DenseI64ArrayAttr:$bias_dimensions,
                             OptionalAttr<F64Attr>:$ratio, UnitAttr:$safe);
}

def Mpc_AttentionOp : Mpc_AttentionLike<"attention", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "dropout(softmax(scale · query · keyᵀ + bias)) · value without the scores in memory; log Σ exp of the scores' rows (f32)";
  let description = [{
    Per batch b and head h, all in f32 but for one rounding of the result:

    ```
    s[m, n]            = scale · Σd query[b, m, h, d] · key[b, n, h, d] + bias
    l[m]               = log Σn exp(s[m, n])
    p[m, n]            = exp(s[m, n] - l[m])
    w[m, n]            = kept by dropout ? p[m, n] / (1 - ratio) : 0;  without dropout p[m, n]
    result[b, m, h, e] = Σn w[m, n] · value[b, n, h, e]
    ```
    `bias` is f32: what mpc.broadcast with `bias_dimensions` would repeat to the scores. Of halves the weights may be rounded to the operands' type before
    they are multiplied. A row of scores with NaN or ∞, or of -∞ alone, gives NaN. With `safe` its result is 0, and the gradients of a row of -∞ alone are,
    too (those of NaN and ∞ stay NaN); of such a row p, μ and log σ below are 0. No library does that.

    `statistics` is what the generated gradient computes p with, exp((s - μ) - log σ): the largest score μ of each row, then log σ = l - μ. f32 cannot hold l where
    scores are large: of a row that a mask of -1e9 leaves nothing of, the logarithm of the number of keys is lost. `log_sum_exp` is for a library, which computes
    p = exp(s - log_sum_exp) and so bounds scores from below at -100000 beside a bias (a row of -∞ alone then has equal weights): l of scores bounded so. Where a
    library has executed the operation, μ is its log_sum_exp, and log σ is ∞, which says that. Only raise-attention makes this operation, and only for a GPU.

    ```mlir
    %o, %l, %s = mpc.attention %q, %k, %v bias %mask {scale = 1.250000e-01 : f32, bias_dimensions = array<i64: 0, 3>}
      : (tensor<8x64x2x64xf16>, tensor<8x64x2x64xf16>, tensor<8x64x2x64xf16>, tensor<8x64xf32>) -> (tensor<8x64x2x64xf16>, tensor<8x2x64xf32>, tensor<2x8x2x64xf32>)
    ```
  }];
  let arguments = !con((ins AnyRankedTensor:$query, AnyRankedTensor:$key, AnyRankedTensor:$value), attentionExtras);
  let results = (outs AnyRankedTensor:$result, AnyRankedTensor:$log_sum_exp, AnyRankedTensor:$statistics);
  let assemblyFormat = "$query `,` $key `,` $value (`bias` $bias^)? (`dropout` $state^ `,` $stream)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Mpc_AttentionGradOp : Mpc_AttentionLike<"attention_grad"> {
  let summary = "Gradients of attention: query, key and value; the weights are computed again";
  let description = [{
    With p and w as above, dp = (kept ? output_gradient · valueᵀ / (1 - ratio) : 0) and ds = p · (dp - Σe output_gradient · output):
    query_gradient = scale · ds · key, key_gradient = scale · dsᵀ · query, value_gradient = wᵀ · output_gradient. The bias gets none.
  }];
  let arguments = !con((ins AnyRankedTensor:$output_gradient, AnyRankedTensor:$query, AnyRankedTensor:$key, AnyRankedTensor:$value,
                            AnyRankedTensor:$output, AnyRankedTensor:$log_sum_exp, AnyRankedTensor:$statistics), attentionExtras);
  let results = (outs AnyRankedTensor:$query_gradient, AnyRankedTensor:$key_gradient, AnyRankedTensor:$value_gradient);
  let assemblyFormat = "$output_gradient `,` $query `,` $key `,` $value `,` $output `,` $log_sum_exp `,` $statistics (`bias` $bias^)? (`dropout` $state^ `,` $stream)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

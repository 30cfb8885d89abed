//===- PrecisionTable.cpp - precision class of every ONNX operator --------------===//
//
// One table for every target. The source says who puts the operator, or the nearest one
// of its own, into that class: PT PyTorch's autocast, TF grappler's auto_mixed_precision,
// AX Apex, ORT ONNX Runtime training, OCC onnxconverter-common, MO NVIDIA Model-Optimizer's
// AutoCast, PD Paddle's static AMP; "own" was chosen here. docs/precision-and-loss-scaling.md has
// the rules.
//
//===----------------------------------------------------------------------------===//

#include "PrecisionTable.h"
#include "llvm/ADT/StringMap.h"

using namespace mpc;
using enum PrecisionClass;

static constexpr PrecisionEntry table[] = {
    // Half operands, f32 accumulator, one rounding at the result.
    {"Conv", H, "PT, TF allow, AX, PD; DeformConv own"},
    {"ConvTranspose", H, "PT, TF allow, AX, PD; DeformConv own"},
    {"DeformConv", H, "PT, TF allow, AX, PD; DeformConv own"},
    {"MatMul", H, "PT, TF allow, AX, PD; DeformConv own"},
    {"Gemm", H, "PT, TF allow, AX, PD; DeformConv own"},
    {"Einsum", H, "PT, TF allow, AX, PD; DeformConv own"},
    {"Attention", H, "PT sdpa; PR 103167; MO depth rule"},
    {"LSTM", H, "PT cells, TF CudnnRNN; cell state own"},
    {"GRU", H, "PT cells, TF CudnnRNN; cell state own"},
    {"RNN", H, "PT cells, TF CudnnRNN; cell state own"},
    {"FusedMatMul", H, "own: as the operators they fuse"},
    {"FusedGemm", H, "own: as the operators they fuse"},
    {"MultiHeadAttention", H, "own: as the operators they fuse"},
    // f32.
    {"SoftmaxCrossEntropyLoss", F, "PT, TF deny, ORT loss subgraph, PD"},
    {"NegativeLogLikelihoodLoss", F, "PT, TF deny, ORT loss subgraph, PD"},
    {"ReduceSum", F, "PT (sum, prod), TF deny Sum/Mean, PD"},
    {"ReduceMean", F, "PT (sum, prod), TF deny Sum/Mean, PD"},
    {"ReduceProd", F, "PT (sum, prod), TF deny Sum/Mean, PD"},
    {"ReduceL1", F, "PT norm, logsumexp; TF L2Loss; MO depth"},
    {"ReduceL2", F, "PT norm, logsumexp; TF L2Loss; MO depth"},
    {"ReduceSumSquare", F, "PT norm, logsumexp; TF L2Loss; MO depth"},
    {"ReduceLogSum", F, "PT norm, logsumexp; TF L2Loss; MO depth"},
    {"ReduceLogSumExp", F, "PT norm, logsumexp; TF L2Loss; MO depth"},
    {"CumSum", F, "PT; OCC block (CumSum)"},
    {"CumProd", F, "PT; OCC block (CumSum)"},
    {"Exp", F, "PT; TF deny Exp/Pow (Log, Reciprocal infer); PD"},
    {"Log", F, "PT; TF deny Exp/Pow (Log, Reciprocal infer); PD"},
    {"Pow", F, "PT; TF deny Exp/Pow (Log, Reciprocal infer); PD"},
    {"Reciprocal", F, "PT; TF deny Exp/Pow (Log, Reciprocal infer); PD"},
    {"Softplus", F, "PT fp32 list"},
    {"Sinh", F, "PT fp32 list"},
    {"Cosh", F, "PT fp32 list"},
    {"Tan", F, "PT fp32 list"},
    {"Asin", F, "PT fp32 list"},
    {"Acos", F, "PT fp32 list"},
    {"Asinh", F, "own, by analogy (poles or exp inside)"},
    {"Acosh", F, "own, by analogy (poles or exp inside)"},
    {"Atanh", F, "own, by analogy (poles or exp inside)"},
    {"Resize", F, "PT upsample_*, AX, OCC, MO, PD"},
    {"Upsample", F, "PT upsample_*, AX, OCC, MO, PD"},
    {"RoiAlign", F, "OCC block, MO; type limits"},
    {"NonMaxSuppression", F, "OCC block, MO; type limits"},
    {"Range", F, "OCC block, MO; type limits"},
    {"Celu", F, "OCC block, MO; type limits"},
    {"STFT", F, "PT CPU fft/linalg fp32"},
    {"DFT", F, "PT CPU fft/linalg fp32"},
    {"MelWeightMatrix", F, "PT CPU fft/linalg fp32"},
    {"HannWindow", F, "PT CPU fft/linalg fp32"},
    {"HammingWindow", F, "PT CPU fft/linalg fp32"},
    {"BlackmanWindow", F, "PT CPU fft/linalg fp32"},
    {"Det", F, "PT CPU fft/linalg fp32"},
    {"LpPool", F, "own (sum of powers)"},
    {"GlobalLpPool", F, "own (sum of powers)"},
    {"Adam", F, "all: masters fp32; ORT, PT"},
    {"Adagrad", F, "all: masters fp32; ORT, PT"},
    {"Momentum", F, "all: masters fp32; ORT, PT"},
    {"Gradient", F, "all: masters fp32; ORT, PT"},
    {"Loss", F, "PT, TF deny, ORT loss subgraph, PD"},

    // F°: f32 inside; the result is stored half where a consumer computes in half. Scale, bias and
    // statistics stay f32.
    {"BatchNormalization", FHalf, "ONNX-15 text, TF V2 rewrite, AX O2"},
    {"LayerNormalization", FHalf, "PT fp32; stash_type=1; PT #188955 asks for °"},
    {"RMSNormalization", FHalf, "PT fp32; stash_type=1; PT #188955 asks for °"},
    {"GroupNormalization", FHalf, "PT fp32; stash_type=1; PT #188955 asks for °"},
    {"InstanceNormalization", FHalf, "AX, PT norm; own for MVN"},
    {"LRN", FHalf, "AX, PT norm; own for MVN"},
    {"MeanVarianceNormalization", FHalf, "AX, PT norm; own for MVN"},
    {"LpNormalization", FHalf, "AX, PT norm; own for MVN"},
    {"Softmax", FHalf, "PT set_opt_dtype, AX, PD (TF: infer)"},
    {"LogSoftmax", FHalf, "PT set_opt_dtype, AX, PD (TF: infer)"},
    {"SkipLayerNormalization", FHalf, "own: as the operators they fuse"},
    {"SimplifiedLayerNormalization", FHalf, "own: as the operators they fuse"},
    {"SkipSimplifiedLayerNormalization", FHalf, "own: as the operators they fuse"},
    {"EmbedLayerNormalization", FHalf, "own: as the operators they fuse"},

    // Pointwise: half exactly where all float inputs are, computed in f32.
    {"PRelu", P, "PT, AX low precision; P is equally safe"},
    {"Add", P, "TF infer, AX widest, PD gray"},
    {"Sub", P, "TF infer, AX widest, PD gray"},
    {"Mul", P, "TF infer, AX widest, PD gray"},
    {"Div", P, "TF infer, AX widest, PD gray"},
    {"Sum", P, "TF infer, AX widest, PD gray"},
    {"Mean", P, "TF infer, AX widest, PD gray"},
    {"Max", P, "TF clear; OCC blocks Max/Min only for kernels"},
    {"Min", P, "TF clear; OCC blocks Max/Min only for kernels"},
    {"Mod", P, "TF clear; OCC blocks Max/Min only for kernels"},
    {"Sqrt", P, "TF infer; PT fall-through"},
    {"Erf", P, "TF infer; PT fall-through"},
    {"Sigmoid", P, "TF infer; PT fall-through"},
    {"Tanh", P, "TF infer; PT fall-through"},
    {"Elu", P, "TF infer; PT fall-through"},
    {"Selu", P, "TF infer; PT fall-through"},
    {"LeakyRelu", P, "TF infer; PT fall-through"},
    {"Softsign", P, "TF infer; PT fall-through"},
    {"Gelu", P, "own: as above; evaluate inside in fp32"},
    {"HardSigmoid", P, "own: as above; evaluate inside in fp32"},
    {"HardSwish", P, "own: as above; evaluate inside in fp32"},
    {"Swish", P, "own: as above; evaluate inside in fp32"},
    {"Mish", P, "own: as above; evaluate inside in fp32"},
    {"ThresholdedRelu", P, "own: as above; evaluate inside in fp32"},
    {"Shrink", P, "own: as above; evaluate inside in fp32"},
    {"Sin", P, "PT fall-through; large arguments in half are poor, own"},
    {"Cos", P, "PT fall-through; large arguments in half are poor, own"},
    {"Atan", P, "PT fall-through; large arguments in half are poor, own"},
    {"AveragePool", P, "TF infer; accumulator own"},
    {"GlobalAveragePool", P, "TF infer; accumulator own"},
    {"GridSample", P, "PT promote; PD scatter black"},
    {"ScatterElements", P, "PT promote; PD scatter black"},
    {"ScatterND", P, "PT promote; PD scatter black"},
    {"Equal", P, "AX widest; TF clear"},
    {"Greater", P, "AX widest; TF clear"},
    {"GreaterOrEqual", P, "AX widest; TF clear"},
    {"Less", P, "AX widest; TF clear"},
    {"LessOrEqual", P, "AX widest; TF clear"},
    {"Where", P, "AX widest; TF clear"},
    {"Concat", P, "PT CPU promote, AX widest; TF clear"},
    {"SequenceConstruct", P, "PT CPU promote, AX widest; TF clear"},
    {"ConcatFromSequence", P, "PT CPU promote, AX widest; TF clear"},
    {"Dropout", P, "ORT; PD gray"},
    {"BiasGelu", P, "own: as the operators they fuse"},
    {"FastGelu", P, "own: as the operators they fuse"},
    {"QuickGelu", P, "own: as the operators they fuse"},

    // No arithmetic that rounds: the producer's type.
    {"Identity", K, "TF clear, ORT level 1"},
    {"Reshape", K, "TF clear, ORT level 1"},
    {"Flatten", K, "TF clear, ORT level 1"},
    {"Squeeze", K, "TF clear, ORT level 1"},
    {"Unsqueeze", K, "TF clear, ORT level 1"},
    {"Transpose", K, "TF clear, ORT level 1"},
    {"Expand", K, "TF clear, ORT level 1"},
    {"Tile", K, "TF clear, ORT level 1"},
    {"Slice", K, "TF clear, ORT level 1"},
    {"Split", K, "TF clear, ORT level 1"},
    {"Pad", K, "TF clear, ORT level 1"},
    {"Gather", K,
     "TF clear; embedding table may stay fp32 (PD: fp16 lookup slower); its scatter-add gradient "
     "is F"},
    {"GatherElements", K,
     "TF clear; embedding table may stay fp32 (PD: fp16 lookup slower); its scatter-add gradient "
     "is F"},
    {"GatherND", K,
     "TF clear; embedding table may stay fp32 (PD: fp16 lookup slower); its scatter-add gradient "
     "is F"},
    {"Compress", K,
     "TF clear; embedding table may stay fp32 (PD: fp16 lookup slower); its scatter-add gradient "
     "is F"},
    {"Unique", K,
     "TF clear; embedding table may stay fp32 (PD: fp16 lookup slower); its scatter-add gradient "
     "is F"},
    {"ReverseSequence", K,
     "TF clear; embedding table may stay fp32 (PD: fp16 lookup slower); its scatter-add gradient "
     "is F"},
    {"Trilu", K,
     "TF clear; embedding table may stay fp32 (PD: fp16 lookup slower); its scatter-add gradient "
     "is F"},
    {"DepthToSpace", K, "TF clear"},
    {"SpaceToDepth", K, "TF clear"},
    {"MaxPool", K, "TF clear"},
    {"GlobalMaxPool", K, "TF clear"},
    {"MaxUnpool", K, "TF clear"},
    {"Relu", K, "TF clear (exact in half; Clip bounds cast)"},
    {"Abs", K, "TF clear (exact in half; Clip bounds cast)"},
    {"Neg", K, "TF clear (exact in half; Clip bounds cast)"},
    {"Sign", K, "TF clear (exact in half; Clip bounds cast)"},
    {"Floor", K, "TF clear (exact in half; Clip bounds cast)"},
    {"Ceil", K, "TF clear (exact in half; Clip bounds cast)"},
    {"Round", K, "TF clear (exact in half; Clip bounds cast)"},
    {"Clip", K, "TF clear (exact in half; Clip bounds cast)"},
    {"ReduceMax", K, "TF clear (OCC blocks TopK for kernels)"},
    {"ReduceMin", K, "TF clear (OCC blocks TopK for kernels)"},
    {"ArgMax", K, "TF clear (OCC blocks TopK for kernels)"},
    {"ArgMin", K, "TF clear (OCC blocks TopK for kernels)"},
    {"TopK", K, "TF clear (OCC blocks TopK for kernels)"},
    {"Hardmax", K, "TF clear (OCC blocks TopK for kernels)"},
    {"OneHot", K, "TF clear (OCC blocks TopK for kernels)"},
    {"Shape", K, "no float output"},
    {"Size", K, "no float output"},
    {"NonZero", K, "no float output"},
    {"IsNaN", K, "no float output"},
    {"IsInf", K, "no float output"},
    {"Not", K, "no float output"},
    {"And", K, "no float output"},
    {"Or", K, "no float output"},
    {"Xor", K, "no float output"},
    {"BitShift", K, "no float output"},
    {"Constant", K, "take consumer's type; draw in fp32, own"},
    {"ConstantOfShape", K, "take consumer's type; draw in fp32, own"},
    {"EyeLike", K, "take consumer's type; draw in fp32, own"},
    {"RandomNormal", K, "take consumer's type; draw in fp32, own"},
    {"RandomNormalLike", K, "take consumer's type; draw in fp32, own"},
    {"RandomUniform", K, "take consumer's type; draw in fp32, own"},
    {"RandomUniformLike", K, "take consumer's type; draw in fp32, own"},
    {"Bernoulli", K, "take consumer's type; draw in fp32, own"},
    {"Multinomial", K, "take consumer's type; draw in fp32, own"},
    {"Cast", K, "explicit Cast(to=FLOAT) = user barrier, keep (MO/OCC delete or rewrite it), own"},
    {"CastLike", K,
     "explicit Cast(to=FLOAT) = user barrier, keep (MO/OCC delete or rewrite it), own"},
    {"If", K, "bodies recursed, loop-carried types made equal (TF back-edge rule)"},
    {"Loop", K, "bodies recursed, loop-carried types made equal (TF back-edge rule)"},
    {"Scan", K, "bodies recursed, loop-carried types made equal (TF back-edge rule)"},
    {"QuantizeLinear", K, "scale type rules"},
    {"DequantizeLinear", K, "scale type rules"},
};

const PrecisionEntry *mpc::findPrecision(llvm::StringRef op) {
  static const llvm::StringMap<const PrecisionEntry *> byName = [] {
    llvm::StringMap<const PrecisionEntry *> map;
    for (const PrecisionEntry &entry : table)
      map[entry.op] = &entry;
    return map;
  }();
  return byName.lookup(
      op.substr(op.rfind(':') + 1)); // "com.microsoft:Gelu" is in the class of Gelu
}

llvm::StringRef mpc::nameOf(PrecisionClass precision) {
  switch (precision) {
  case H:
    return "H";
  case F:
    return "F";
  case FHalf:
    return "F\u00b0";
  case P:
    return "P";
  case K:
    return "K";
  }
  return "";
}

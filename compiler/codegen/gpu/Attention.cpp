//===- Attention.cpp - which blocks attention is made of --------------------------------===//

#include "compiler/codegen/gpu/Attention.h"
#include "compiler/codegen/gpu/EmitAttention.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;

namespace mpc::gpu {

static int64_t divideCeil(int64_t a, int64_t b) { return llvm::divideCeil(a, b); }

// A warp's rows, and what ldmatrix transposes at once: columns come in multiples of it.
constexpr int64_t kColumnUnit = 16;
constexpr int64_t kHalfBytes = 2, kPieceElements = kAccessBytes / kHalfBytes;
// Columns of the sums that a block keeps, per side, and words of its fixed rows in a thread's
// registers.
constexpr int64_t kMostSums = 128, kMostFixedWords = 64;
// What drawing a mask takes of the latter.
constexpr int64_t kDropoutWords = 8;
// The widest head whose sums one block keeps while it draws a mask, of tensor cores and without:
// measured, beyond that ptxas has no registers for all of it on sm_70 to sm_75.
constexpr int64_t kMostDrawnOfTensorCores = 96, kMostDrawn = 64;

void Attention::setBias(RankedTensorType type, ArrayRef<int64_t> dimensions) {
  bias = type;
  biasStrides = {};
  int64_t stride = 1;
  for (size_t i = dimensions.size(); i-- > 0; stride *= type.getDimSize(i))
    biasStrides[dimensions[i]] = stride;
}

bool supportsAttention(const Attention &attention) {
  Type type = attention.element;
  auto isWidth = [](int64_t width) { return width >= 1 && width <= kMostAttentionChannels; };
  return (type.isF32() || hasTensorCores(type)) && isWidth(attention.depth) &&
         isWidth(attention.width) && attention.keys >= 1;
}

//===--------------------------------------------------------------------------------------===//
// Tiles
//===--------------------------------------------------------------------------------------===//

/// Equal parts of at most `most` columns.
static int64_t chunkOf(int64_t columns, int64_t count) {
  return llvm::alignTo(divideCeil(columns, count), kColumnUnit);
}

/// Dropout where every score draws its number by itself (AttentionDropout.cpp).
static bool drawsByItself(const Attention &attention) {
  return attention.dropoutRatio && attention.keys % 4 != 0;
}

//   A thread keeps chunk / 2 sums of each side. Those of two sides leave few registers: where
//   elements, or the numbers of a mask, do not come in fours, which takes more of them, and where a
//   mask is drawn beside a wide head, blocks have half as many.
AttentionChunks attentionChunks(const Attention &attention, AttentionPass pass) {
  bool ofDepth = pass != AttentionPass::forward, ofWidth = pass != AttentionPass::queries;
  int64_t columns = std::max(ofDepth ? attention.depth : 0, ofWidth ? attention.width : 0);
  int64_t mostDrawn = hasTensorCores(attention.element) ? kMostDrawnOfTensorCores : kMostDrawn;
  bool isScattered = attention.depth % 4 != 0 || attention.width % 4 != 0 ||
                     drawsByItself(attention) || (attention.dropoutRatio && columns > mostDrawn);
  int64_t count =
      divideCeil(columns, ofDepth && ofWidth && isScattered ? kMostSums / 2 : kMostSums);
  return {ofDepth ? chunkOf(attention.depth, count) : 0,
          ofWidth ? chunkOf(attention.width, count) : 0, count};
}

AttentionPlan::AttentionPlan(const Attention &attention, AttentionPass pass, Mma mma) {
  AttentionChunks chunks = attentionChunks(attention, pass);
  bool isForward = pass == AttentionPass::forward;
  int64_t widest = std::max(attention.depth, attention.width);
  columns = (isForward ? 64 : 32) / (widest <= 64 ? 1 : 2);

  // A moving tile is read by all threads in pieces of 16 bytes, each as many.
  int64_t unit = std::max(kAttentionThreads * kPieceElements / columns, kColumnUnit), tiles = 0;
  spans = {std::max(attention.depth, chunks.depth * chunks.count),
           isForward ? chunks.width : std::max(attention.width, chunks.width * chunks.count)};
  for (int64_t &span : spans) {
    span = llvm::alignTo(span, unit);
    tiles += padded(span) * kHalfBytes;
  }
  // A thread has two words of the fixed rows per 8 columns; the pass over keys has its registers
  // full of the sums of two sides.
  int64_t words = chunkOf(attention.depth, 1) / 4;
  if (!isForward)
    words += chunkOf(attention.width, 1) / 4;
  bool isFull = pass == AttentionPass::keys && widest > 64;
  sharedBytes = columns * tiles;
  // Drawing a mask takes registers, too.
  int64_t most = kMostFixedWords - (attention.dropoutRatio ? kDropoutWords : 0);
  bool fits = words <= (drawsByItself(attention) ? most : kMostFixedWords);
  fixed = fits && !isFull                                        ? inRegisters
          : sharedBytes + kAttentionRows * tiles <= kSharedBytes ? inSharedMemory
                                                                 : inMemory;
  if (fixed == inSharedMemory)
    sharedBytes += kAttentionRows * tiles;
  // Two lanes have each word of m8n8k4; a block has the same shared memory on every GPU.
  if (fixed == inRegisters && mma == Mma::m8n8k4 && 2 * words > most)
    fixed = inMemory;
}

static int64_t sharedBytes(const Attention &attention, AttentionPass pass) {
  AttentionChunks chunks = attentionChunks(attention, pass);
  int64_t bytes = registerTilesBytes(std::max(chunks.depth, chunks.width));
  if (hasTensorCores(attention.element))
    bytes = std::max(bytes, AttentionPlan(attention, pass, Mma::m16n8k16).sharedBytes);
  return bytes;
}

//===--------------------------------------------------------------------------------------===//
// Functions
//===--------------------------------------------------------------------------------------===//

/// attention_24x128x128x64x64_0123456789abcdef: the hash is of everything that the code depends on.
static std::string nameOf(const Attention &attention) {
  std::string content, name;
  llvm::raw_string_ostream to(content);
  bool isForward = attention.kind == AttentionKind::forward;
  to << isForward << "," << attention.batch << "," << attention.heads << "," << attention.queries
     << "," << attention.keys << "," << attention.depth << "," << attention.width << ","
     << attention.element << "," << llvm::bit_cast<uint32_t>(attention.scale);
  if (attention.bias) {
    to << "," << attention.bias;
    for (int64_t stride : attention.biasStrides)
      to << "," << stride;
  }
  if (attention.dropoutRatio)
    to << ",dropout," << llvm::bit_cast<uint64_t>(*attention.dropoutRatio);
  if (attention.isSafe && isForward)
    to << ",safe";
  llvm::raw_string_ostream text(name);
  text << (isForward ? "attention_" : "attention_grad_") << attention.batch * attention.heads << "x"
       << attention.queries << "x" << attention.keys << "x" << attention.depth << "x"
       << attention.width << "_"
       << llvm::utohexstr(llvm::xxh3_64bits(content), /*LowerCase=*/true, 16);
  return name;
}

SmallVector<Function, 3> attentionFunctions(const Attention &attention) {
  int64_t all = attention.batch * attention.heads;
  auto pass = [&](const std::string &name, AttentionPass pass, int64_t rows) {
    return Function{name,
                    all * divideCeil(rows, kAttentionRows) * attentionChunks(attention, pass).count,
                    kAttentionThreads, sharedBytes(attention, pass)};
  };
  std::string name = nameOf(attention);
  if (all == 0)
    return {};
  if (attention.kind == AttentionKind::forward) {
    if (attention.queries == 0)
      return {};
    Function statistics{name + "$statistics", divideCeil(all * attention.queries, kBlockThreads),
                        kBlockThreads};
    statistics.afterLibrary = true;
    return {pass(name, AttentionPass::forward, attention.queries), statistics};
  }
  SmallVector<Function, 3> functions;
  if (attention.queries)
    functions.push_back({name + "$delta",
                         divideCeil(all * attention.queries, kBlockThreads / kWarp),
                         kBlockThreads});
  functions.push_back(pass(name + "$keys", AttentionPass::keys, attention.keys));
  if (attention.queries)
    functions.push_back(pass(name + "$queries", AttentionPass::queries, attention.queries));
  return functions;
}

int64_t attentionScratchBytes(const Attention &attention) {
  return attention.kind == AttentionKind::forward
             ? 0
             : attention.batch * attention.heads * attention.queries * int64_t(sizeof(float));
}

/// A kernel with the operands and results: the emitter's frame.
static func::FuncOp frameOf(OpBuilder &b, Location loc, const Attention &a) {
  auto matrix = [&](int64_t rows, int64_t columns) {
    return RankedTensorType::get({a.batch, rows, a.heads, columns}, a.element);
  };
  Type q = matrix(a.queries, a.depth), k = matrix(a.keys, a.depth), v = matrix(a.keys, a.width),
       o = matrix(a.queries, a.width),
       l = RankedTensorType::get({a.batch, a.heads, a.queries}, b.getF32Type()),
       statistics = RankedTensorType::get({2, a.batch, a.heads, a.queries}, b.getF32Type());
  bool isForward = a.kind == AttentionKind::forward;
  SmallVector<Type> operands{q, k, v}, results{o, l, statistics};
  if (!isForward) {
    operands = {o, q, k, v, o, l, statistics};
    results = {q, k, v};
  }
  if (a.bias)
    operands.push_back(a.bias);
  if (a.dropoutRatio)
    operands.append(2, RankedTensorType::get({2}, b.getI64Type()));
  auto frame = func::FuncOp::create(b, loc, "attention", b.getFunctionType(operands, results));
  frame.setPrivate();
  SmallVector<int64_t> aliases(results.size(), -1);
  frame->setAttr(MpcDialect::kKernelAttr,
                 KernelAttr::get(b.getContext(), KernelKind::map,
                                 b.getDenseI64ArrayAttr(cast<RankedTensorType>(o).getShape()), 0,
                                 b.getDenseI64ArrayAttr(aliases)));
  return frame;
}

LogicalResult emitAttention(OpBuilder &builder, Location loc, const Attention &attention,
                            unsigned architecture) {
  SmallVector<Function, 3> functions = attentionFunctions(attention);
  if (functions.empty())
    return success();
  Mma mma = mmaOf(architecture, attention.element);
  func::FuncOp frame = frameOf(builder, loc, attention);
  LogicalResult done = attention.kind == AttentionKind::forward
                           ? emitAttentionForward(frame, attention, functions, mma)
                           : emitAttentionGradient(frame, attention, functions, mma);
  frame.erase();
  return done;
}

} // namespace mpc::gpu

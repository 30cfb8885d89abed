//===- Product.cpp - which tiles a product is made of -----------------------------------===//

#include "compiler/codegen/gpu/Product.h"
#include "compiler/codegen/gpu/Depthwise.h"
#include "compiler/codegen/gpu/EmitProduct.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;

namespace mpc::gpu {

static int64_t divideCeil(int64_t a, int64_t b) { return llvm::divideCeil(a, b); }

constexpr ProductTile kTiles[] = {{128, 128, 256, 4}, {128, 64, 256, 4}, {64, 128, 256, 2},
                                  {64, 64, 128, 2},   {64, 32, 128, 2},  {32, 64, 128, 2},
                                  {32, 32, 128, 2}};
// Bytes of the sums that a thread keeps in registers, at most.
constexpr int64_t kSumBytes = 256;
// Blocks that a large GPU runs at the same time: fewer leave a part of it idle.
constexpr int64_t kFillBlocks = 256;
// A part of a split depth is at least so deep, and a multiple of every tile's depth.
constexpr int64_t kLeastDepth = 256, kDepthUnit = 32;
// Time of a tile's row or column read from memory, and of a partial sum that is written and read
// again, in multiplications.
constexpr double kReadCost = 16, kPartialCost = 80;

bool isProduct(Operation *op) {
  return isa<MatmulOp, ConvOp, ConvBackwardDataOp, ConvBackwardWeightsOp>(op);
}

/// The grid of one kind of tile, and about how long it takes, in multiplications of a block.
static std::pair<ProductGrid, double> gridOf(const ProductMap &map, const ProductTile &tile) {
  ProductGrid grid{tile, divideCeil(map.rows, tile.rows), divideCeil(map.columns, tile.columns), 1,
                   0};
  int64_t blocks = map.batch * grid.tileRows * grid.tileColumns;
  int64_t splits =
      std::clamp<int64_t>(map.depth / kLeastDepth, 1, std::max<int64_t>(1, kFillBlocks / blocks));
  grid.splitDepth = llvm::alignTo(divideCeil(map.depth, splits), kDepthUnit);
  grid.splits = map.isZero() ? 1 : divideCeil(map.depth, grid.splitDepth);

  double area = double(tile.rows * tile.columns);
  double perDepth = area + kReadCost * double(tile.rows + tile.columns);
  double cost =
      double(std::max(blocks * grid.splits, kFillBlocks)) * perDepth * double(grid.splitDepth);
  if (grid.splits > 1)
    cost += kPartialCost * double(grid.splits * map.batch * map.rows * map.columns);
  return {grid, cost};
}

int64_t tileDepth(bool tensorCores) { return tensorCores ? 32 : 16; }

SharedLayout sharedLayout(const ProductMap &map, const ProductSide &side, int64_t outers,
                          bool tensorCores) {
  Type element = tensorCores ? map.element : map.accumulator;
  int64_t depth = tileDepth(tensorCores), pad = 16 / storedBytes(element);
  if (tensorCores && side.alongDepth)
    return {element, depth + pad, 1, outers * (depth + pad)};
  return {element, 1, outers + pad, depth * (outers + pad)};
}

/// Of a block: two tiles of each side, of which one is filled while the other is multiplied.
static int64_t sharedBytes(const ProductMap &map, const ProductGrid &grid, bool tensorCores) {
  SharedLayout left = sharedLayout(map, map.left, grid.tile.rows, tensorCores);
  SharedLayout right = sharedLayout(map, map.right, grid.tile.columns, tensorCores);
  return 2 * (left.elements + right.elements) * storedBytes(left.element);
}

static ProductGrid gridOf(const ProductMap &map) {
  if (map.depthwiseGroups) {
    DepthwiseGrid grid(map);
    return {{0, 0, grid.threads, 0}, 0, 0, grid.splits, grid.splitDepth};
  }
  ProductGrid best{};
  double least = 0;
  for (const ProductTile &tile : kTiles) {
    if (tile.rows * tile.columns / tile.threads * storedBytes(map.accumulator) > kSumBytes)
      continue;
    auto [grid, cost] = gridOf(map, tile);
    if (std::max(sharedBytes(map, grid, false),
                 sharedBytes(map, grid, hasTensorCores(map.element))) > kSharedBytes)
      continue;
    if (best.tile.threads == 0 || cost < least) {
      best = grid;
      least = cost;
    }
  }
  return best;
}

ProductGrid productGrid(Operation *command) { return gridOf(ProductMap(command)); }

/// conv_4096x64x576_0123456789abcdef: the hash is of everything that the code depends on.
static std::string nameOf(Operation *command, const ProductMap &map) {
  std::string content, name;
  llvm::raw_string_ostream to(content);
  NamedAttrList attributes;
  command->getName().populateInherentAttrs(command, attributes);
  to << command->getName() << attributes.getDictionary(command->getContext());
  for (Type type : command->getOperandTypes())
    to << type << ",";
  to << command->getResult(0).getType();

  llvm::raw_string_ostream text(name);
  text << command->getName().stripDialect() << "_";
  if (map.batch > 1)
    text << map.batch << "x";
  text << map.rows << "x" << map.columns << "x" << map.depth << "_"
       << llvm::utohexstr(llvm::xxh3_64bits(content), /*LowerCase=*/true, 16);
  return name;
}

static Function tilesFunction(const std::string &name, const ProductMap &map,
                              const ProductGrid &grid) {
  int64_t shared = sharedBytes(map, grid, false);
  if (hasTensorCores(map.element))
    shared = std::max(shared, sharedBytes(map, grid, true));
  return {name, grid.splits * map.batch * grid.tileRows * grid.tileColumns, grid.tile.threads,
          map.isZero() ? 0 : shared};
}

static Function depthwiseFunction(const std::string &name, const ProductMap &map) {
  DepthwiseGrid grid(map);
  return {name, grid.blocks, grid.threads, grid.sharedBytes};
}

SmallVector<Function, 2> productFunctions(Operation *command) {
  ProductMap map(command);
  if (map.isEmpty())
    return {};
  ProductGrid grid = gridOf(map);
  std::string name = nameOf(command, map);
  auto perElement = [](const std::string &name, int64_t elements) {
    return Function{name, divideCeil(elements, kBlockThreads), kBlockThreads};
  };
  SmallVector<Function, 2> functions;
  if (map.packedElements)
    functions.push_back(perElement(name + "$filter", map.packedElements));
  std::string sums = grid.splits > 1 ? name + "$partial" : name;
  functions.push_back(map.depthwiseGroups ? depthwiseFunction(sums, map)
                                          : tilesFunction(sums, map, grid));
  if (grid.splits > 1)
    functions.push_back(perElement(name + "$combine", map.batch * map.rows * map.columns));
  if (map.unpackedElements) {
    functions.push_back(perElement(name + "$gradient", map.unpackedElements));
    functions.back().afterLibrary = true;
  }
  return functions;
}

int64_t productScratchBytes(Operation *command) {
  ProductMap map(command);
  if (map.isEmpty())
    return 0;
  ProductGrid grid = gridOf(map);
  int64_t partials = grid.splits > 1 ? grid.splits * map.batch * map.rows * map.columns : 0;
  return std::max(map.packedBytes() + partials * storedBytes(map.accumulator),
                  map.unpackedElements * storedBytes(map.result));
}

} // namespace mpc::gpu

//===- Reports.cpp - tables about a compiled program -----------------------------------------===//

#include "Reports.h"
#include "MpcDialect.h"
#include "compiler/codegen/gpu/Group.h"
#include "compiler/driver/KernelTraffic.h"
#include "compiler/ops/Build.h"
#include "compiler/ops/OnnxConversion.h"
#include "passes/Arena.h"
#include "passes/Clustering.h"
#include "passes/OperationFacts.h"
#include "passes/PrecisionTable.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/Format.h"

using namespace mlir;
using namespace mpc;

namespace {

struct CostRow {
  std::string name, what;
  int64_t flops = 0, bytes = 0;
};

} // namespace

int64_t mpc::bytesReadOf(BlockArgument argument) {
  int64_t all = tensorBytes(argument.getType()), part = 0;
  for (Operation *user : argument.getUsers()) {
    auto gather = dyn_cast<GatherOp>(user);
    if (!isa<SliceOp>(user) && (!gather || gather.getInput() != argument))
      return all;
    part += tensorBytes(user->getResult(0).getType());
  }
  return std::min(all, part);
}

namespace {

CostRow costOf(Operation &op) {
  CostRow row;
  row.name = nodeOf(&op).str();
  row.what = isa<LaunchOp>(op) ? "kernel " + cast<LaunchOp>(op).getKernel().str()
                               : op.getName().stripDialect().str();
  if (auto cost = dyn_cast<CostOpInterface>(op))
    row.flops = cost.flops();
  row.bytes = movedBytes(&op);
  return row;
}

void printCost(ModuleOp module, llvm::raw_ostream &out) {
  gpu::GroupIndex groups(module);
  for (auto function : module.getOps<func::FuncOp>()) {
    if (function->hasAttr(MpcDialect::kKernelAttr))
      continue;
    SmallVector<CostRow> rows;
    for (Operation &op : function.getBody().front())
      if ((isa<LaunchOp>(op) && !op.hasAttr(gpu::kPlacedAttr)) || isLibraryOp(&op))
        rows.push_back(costOf(op));
    if (rows.empty())
      continue;
    llvm::stable_sort(rows, [](const CostRow &a, const CostRow &b) { return a.bytes > b.bytes; });
    int64_t flops = 0, bytes = 0;
    for (const CostRow &row : rows) {
      flops += row.flops;
      bytes += row.bytes;
    }
    out << "cost of " << function.getName() << ": " << rows.size() << " commands, "
        << llvm::format("%.6g", double(flops)) << " FLOPs in library calls, " << bytes
        << " bytes read and written\n";
    KernelTraffic traffic = kernelTraffic(function, groups);
    out << "  " << traffic.kernels << " kernels (on a GPU " << traffic.gpuFunctions
        << " launches), " << traffic.libraryCalls << " library calls; the kernels move "
        << traffic.moved << " bytes, " << traffic.necessary << " are necessary\n";
    out << llvm::format("  %-14s %-14s %-28s %s\n", "bytes", "flops", "command", "node");
    for (const CostRow &row : rows)
      out << llvm::format("  %-14lld %-14lld %-28s ", (long long)row.bytes, (long long)row.flops,
                          row.what.c_str())
          << row.name << "\n";
  }
}

void printMemory(ModuleOp module, llvm::raw_ostream &out) {
  auto regions = module->getAttrOfType<DictionaryAttr>("mpc.region_bytes");
  if (!regions)
    return;
  out << "memory, bytes per region\n";
  int64_t sum = 0;
  for (NamedAttribute entry : regions) {
    int64_t bytes = cast<IntegerAttr>(entry.getValue()).getInt();
    sum += entry.getName() == "accumulators" ? 0 : bytes;
    out << llvm::format("  %-14lld ", (long long)bytes) << entry.getName().getValue() << "\n";
  }
  out << llvm::format("  %-14lld ", (long long)sum)
      << "together (accumulators only with --accumulate; library scratch comes on top)\n"
      << arenaReport(module);
}

bool asksFor(const CompileOptions &options, StringRef report) {
  return llvm::any_of(options.reports,
                      [&](const std::string &r) { return r == report || r == "all"; });
}

} // namespace

int64_t mpc::movedBytes(Operation *command) {
  int64_t bytes = 0;
  if (command->hasAttr(gpu::kPlacedAttr))
    return 0;
  if (auto launch = dyn_cast<LaunchOp>(command)) {
    auto kernel =
        SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(launch, launch.getKernelAttr());
    for (BlockArgument argument : kernel.getArguments())
      bytes += bytesReadOf(argument);
  } else {
    for (Value operand : command->getOperands())
      bytes += tensorBytes(operand.getType());
  }
  for (Value result : command->getResults())
    bytes += tensorBytes(result.getType());
  return bytes;
}

void mpc::printReports(ModuleOp planned, const CompileOptions &options, llvm::raw_ostream &out) {
  if (asksFor(options, "memory"))
    printMemory(planned, out);
  if (asksFor(options, "cost"))
    printCost(planned, out);
  out.flush();
}

/// Whether training passes through an operator: all but these are differentiated.
static StringRef gradientOf(StringRef name) {
  return llvm::StringSwitch<StringRef>(name)
      .Cases({"Ceil", "Floor", "Round", "Sign"}, "zero")
      .Cases({"And", "Or", "Xor", "Not", "Equal", "Greater", "GreaterOrEqual", "Less",
              "LessOrEqual", "IsInf", "IsNaN"},
             "none: its result is true or false")
      .Cases({"ArgMax", "ArgMin", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor",
              "SequenceLength", "Shape", "Size"},
             "none: its results are integers")
      .Cases({"Constant", "ConstantOfShape", "EyeLike", "Range", "SequenceEmpty"},
             "none: its result is a constant")
      .Default("yes");
}

void mpc::printOperatorTable(llvm::raw_ostream &out) {
  const OnnxRegistry &registry = OnnxRegistry::get();
  SmallVector<StringRef> names;
  for (const auto &entry : registry.entries)
    names.push_back(entry.getKey());
  llvm::sort(names);
  out << "| operator | since-versions | gradient | class | targets |\n|---|---|---|---|---|\n";
  for (StringRef name : names) {
    out << "| " << name << " | ";
    llvm::interleaveComma(registry.versions(name), out);
    out << " | " << gradientOf(name) << " | " << precisionClassName(name) << " | cpu, cuda |\n";
  }
}

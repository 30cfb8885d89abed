//===- Reports.cpp - tables about a compiled program -----------------------------------------===//

#include "Reports.h"
#include "MpcDialect.h"
#include "compiler/ops/OnnxConversion.h"
#include "passes/Plan.h"
#include "passes/PrecisionTable.h"
#include "llvm/Support/Format.h"

using namespace mlir;
using namespace mpc;

namespace {

int64_t bytesOf(Type type) {
  auto shaped = cast<RankedTensorType>(type);
  unsigned bits = shaped.getElementTypeBitWidth();
  return shaped.getNumElements() * std::max(1u, bits / 8);
}

struct CostRow {
  std::string name, what;
  int64_t flops = 0, bytes = 0;
};

CostRow costOf(Operation &op) {
  CostRow row;
  auto node = op.getAttrOfType<StringAttr>(MpcDialect::kNodeAttr);
  row.name = node ? node.str() : "";
  row.what = isa<LaunchOp>(op) ? "kernel " + cast<LaunchOp>(op).getKernel().str()
                               : op.getName().stripDialect().str();
  if (auto cost = dyn_cast<CostOpInterface>(op))
    row.flops = cost.flops();
  for (Value operand : op.getOperands())
    row.bytes += bytesOf(operand.getType());
  for (Value result : op.getResults())
    row.bytes += bytesOf(result.getType());
  return row;
}

void printCost(ModuleOp module, llvm::raw_ostream &out) {
  for (auto function : module.getOps<func::FuncOp>()) {
    if (function->hasAttr(MpcDialect::kKernelAttr))
      continue;
    SmallVector<CostRow> rows;
    for (Operation &op : function.getBody().front())
      if (isa<LaunchOp, MatmulOp, ConvOp, ConvBackwardDataOp, ConvBackwardWeightsOp>(op))
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

void mpc::printReports(ModuleOp planned, const CompileOptions &options, llvm::raw_ostream &out) {
  if (asksFor(options, "memory"))
    printMemory(planned, out);
  if (asksFor(options, "cost"))
    printCost(planned, out);
  out.flush();
}

void mpc::printOperatorTable(llvm::raw_ostream &out) {
  const OnnxRegistry &registry = OnnxRegistry::get();
  SmallVector<StringRef> names;
  for (const auto &entry : registry.entries)
    names.push_back(entry.getKey());
  llvm::sort(names);
  out << "| operator | since-versions | class | targets |\n|---|---|---|---|\n";
  for (StringRef name : names) {
    out << "| " << name << " | ";
    llvm::interleaveComma(registry.versions(name), out);
    out << " | " << precisionClassName(name) << " | cpu |\n";
  }
}

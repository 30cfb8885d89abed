//===- AssignLayout.cpp - channels-last convolutions ----------------------------------===//

#include "passes/Passes.h"

namespace mpc {
#define GEN_PASS_DEF_ASSIGNLAYOUT
#include "Passes.h.inc"
} // namespace mpc

using namespace mlir;
using namespace mpc;

namespace {

struct AssignLayout : mpc::impl::AssignLayoutBase<AssignLayout> {
  void runOnOperation() override {}
};

} // namespace

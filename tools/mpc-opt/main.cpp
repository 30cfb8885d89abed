//===- main.cpp - mpc-opt: run passes on textual IR ----------------------------===//

#include "compiler/driver/Registration.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mpc::registerDialects(registry);
  mpc::registerPasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "mpc pass driver\n", registry));
}

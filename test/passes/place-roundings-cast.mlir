// RUN: mpc-opt %s --place-roundings | FileCheck %s

// A rounding that a Cast of the model asks for is made, also where the value is never in memory; the one that
// assign-precision put behind the product of the same kernel is not.

// CHECK-LABEL: func.func @predict
// CHECK-NOT:   tensor<4xbf16>
// CHECK:       %[[HALF:.*]] = arith.truncf %{{.*}} {mpc.keep_rounding} : tensor<4xf32> to tensor<4xf16>
// CHECK:       %[[WIDE:.*]] = arith.extf %[[HALF]] : tensor<4xf16> to tensor<4xf32>
// CHECK:       math.tanh %[[WIDE]]
func.func @predict(%x: tensor<4xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<4xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = math.exp %x {mpc.op = "Exp", mpc.node = "exp"} : tensor<4xf32>
  %1 = arith.truncf %0 {mpc.op = "Exp", mpc.node = "exp"} : tensor<4xf32> to tensor<4xbf16>
  %2 = arith.extf %1 {mpc.op = "Exp", mpc.node = "exp"} : tensor<4xbf16> to tensor<4xf32>
  %3 = arith.truncf %2 {mpc.op = "Cast", mpc.node = "cast"} : tensor<4xf32> to tensor<4xf16>
  %4 = arith.extf %3 {mpc.op = "Cast", mpc.node = "cast back"} : tensor<4xf16> to tensor<4xf32>
  %5 = math.tanh %4 {mpc.op = "Tanh", mpc.node = "tanh"} : tensor<4xf32>
  return %5 : tensor<4xf32>
}

// RUN: mpc-opt %s --expand-composites | FileCheck %s

// An expansion keeps the name and the operator of its node.
// CHECK-LABEL: func.func @forward
// CHECK-DAG:     arith.maximumf %arg0, %{{.*}} {mpc.node = "softplus", mpc.op = "Softplus"}
// CHECK-DAG:     math.log1p {{.*}} {mpc.node = "softplus", mpc.op = "Softplus"}
// CHECK:         math.exp {{.*}} {mpc.node = "gate", mpc.op = "Sigmoid"}
// CHECK:         arith.divf {{.*}} {mpc.node = "gate", mpc.op = "Sigmoid"}
func.func @forward(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = mpc.softplus %x {mpc.node = "softplus", mpc.op = "Softplus"} : tensor<4xf32>
  %1 = mpc.sigmoid %x {mpc.node = "gate", mpc.op = "Sigmoid"} : tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// GELU by tanh in halves: x³ is computed in f32, and the result is rounded once.
// CHECK-LABEL: func.func @gelu
// CHECK:         %[[X:.*]] = arith.extf %arg0
// CHECK:         math.tanh
// CHECK:         %[[Y:.*]] = arith.truncf
// CHECK-NEXT:    return %[[Y]]
func.func @gelu(%x: tensor<4xf16>) -> tensor<4xf16> {
  %0 = mpc.gelu %x {approximate} : tensor<4xf16>
  return %0 : tensor<4xf16>
}

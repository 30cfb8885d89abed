// RUN: mpc-opt %s --autodiff | FileCheck %s
// RUN: mpc-opt %s --autodiff --expand-composites --canonicalize | FileCheck %s --check-prefix=EXPAND

// The gradient reads the logits once more instead of a stored softmax. A row counts if its label is not ignored and its sample is there.
// CHECK-LABEL:  func.func @gradients
// CHECK:          %[[LOSS:.*]], %[[COUNT:.*]] = mpc.cross_entropy %arg0, %arg1, %arg2
// CHECK:          mpc.cross_entropy_grad %{{.*}}, %arg0, %arg1, %arg2, %[[COUNT]]

// EXPAND-LABEL: func.func @gradients
// EXPAND-DAG:     %[[IGNORED:.*]] = arith.constant dense<-100> : tensor<4xi64>
// EXPAND:         %[[NOT_IGNORED:.*]] = arith.cmpi ne, %arg1, %[[IGNORED]]
// EXPAND:         %[[ROW:.*]] = mpc.iota {axis = 0 : i64} : tensor<4xi32>
// EXPAND:         %[[THERE:.*]] = arith.cmpi slt, %[[ROW]]
// EXPAND:         %[[COUNTS:.*]] = arith.andi %[[NOT_IGNORED]], %[[THERE]]
// EXPAND:         %[[CLASS:.*]] = mpc.iota {axis = 1 : i64} : tensor<4x5xi32>
// EXPAND:         %[[IS_LABEL:.*]] = arith.cmpi eq, %[[CLASS]]
// EXPAND:         mpc.reduce max %arg0
// EXPAND:         %[[SHIFTED:.*]] = arith.subf %arg0
// EXPAND:         %[[PICKED:.*]] = arith.select %[[IS_LABEL]], %[[SHIFTED]]
// EXPAND:         mpc.reduce sum %[[PICKED]] {axes = array<i64: 1>}
// EXPAND:         math.log
// EXPAND:         arith.select %[[COUNTS]]
func.func @forward(%x: tensor<4x5xf32> {mpc.role = "parameter", mpc.name = "x"}, %l: tensor<4xi64>, %n: tensor<i64>)
    -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}, tensor<f32> {mpc.role = "count", mpc.name = "count"}) {
  %0, %1 = mpc.cross_entropy %x, %l, %n {class_axis = 1 : i64, ignore_index = -100 : i64} : (tensor<4x5xf32>, tensor<4xi64>, tensor<i64>) -> (tensor<f32>, tensor<f32>)
  return %0, %1 : tensor<f32>, tensor<f32>
}

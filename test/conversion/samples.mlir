// RUN: mpc-opt %s --convert-onnx-to-mpc --split-input-file | FileCheck %s

// The batch size as a float is the number of samples that are there; as a shape it is a constant.
// CHECK-LABEL: module attributes {mpc.batch = 2 : i64} {
// CHECK-LABEL: func.func @forward
// CHECK-SAME:    %[[N:arg[0-9]+]]: tensor<i64> {mpc.name = "samples", mpc.role = "samples"}
// CHECK-NEXT:    %[[F:.*]] = mpc.reshape %arg0
// CHECK-NEXT:    %[[C:.*]] = arith.sitofp %[[N]] {mpc.node = "cast"
// CHECK-NEXT:    %[[B:.*]] = mpc.broadcast %[[C]]
// CHECK-NEXT:    %[[D:.*]] = arith.divf %[[F]], %[[B]]
// CHECK-NEXT:    return %[[D]]
module attributes {mpc.batch = 2 : i64} {
  func.func @graph(%x: tensor<2x3x4xf32> {mpc.role = "input", mpc.name = "x"}) -> tensor<2x12xf32> {
    %first = arith.constant dense<0> : tensor<i64>
    %axis = arith.constant dense<0> : tensor<1xi64>
    %rest = arith.constant dense<-1> : tensor<1xi64>
    %0 = onnx.node "Shape" 15 "shape" (%x) {} : (tensor<2x3x4xf32>) -> tensor<3xi64>
    %1 = onnx.node "Gather" 13 "gather" (%0, %first) {axis = 0 : i64} : (tensor<3xi64>, tensor<i64>) -> tensor<i64>
    %2 = onnx.node "Unsqueeze" 13 "row" (%1, %axis) {} : (tensor<i64>, tensor<1xi64>) -> tensor<1xi64>
    %3 = onnx.node "Concat" 13 "flattened" (%2, %rest) {axis = 0 : i64} : (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
    %4 = onnx.node "Reshape" 14 "flat" (%x, %3) {} : (tensor<2x3x4xf32>, tensor<2xi64>) -> tensor<2x12xf32>
    %5 = onnx.node "Cast" 13 "cast" (%1) {to = 1 : i64} : (tensor<i64>) -> tensor<f32>
    %6 = onnx.node "Div" 14 "div" (%4, %5) {} : (tensor<2x12xf32>, tensor<f32>) -> tensor<2x12xf32>
    return %6 : tensor<2x12xf32>
  }
}

// -----

// What is not n times a constant is computed from n by the model's own arithmetic.
// CHECK-LABEL: module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
// CHECK-LABEL: func.func @forward
// CHECK-SAME:    %[[N:arg[0-9]+]]: tensor<i64> {mpc.name = "samples", mpc.role = "samples"}
// CHECK:         %[[H:.*]] = arith.divsi %[[N]], %{{.*}} {mpc.node = "half", mpc.op = "Div"}
// CHECK:         mpc.gather %arg0, %{{.*}} {axis = 1 : i64
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
  func.func @graph(%x: tensor<4x5xf32> {mpc.role = "input", mpc.name = "x"}) -> tensor<4xf32> {
    %first = arith.constant dense<0> : tensor<i64>
    %two = arith.constant dense<2> : tensor<i64>
    %0 = onnx.node "Shape" 15 "shape" (%x) {} : (tensor<4x5xf32>) -> tensor<2xi64>
    %1 = onnx.node "Gather" 13 "n" (%0, %first) {axis = 0 : i64} : (tensor<2xi64>, tensor<i64>) -> tensor<i64>
    %2 = onnx.node "Div" 14 "half" (%1, %two) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
    %3 = onnx.node "Gather" 13 "column" (%x, %2) {axis = 1 : i64} : (tensor<4x5xf32>, tensor<i64>) -> tensor<4xf32>
    return %3 : tensor<4xf32>
  }
}

// -----

// A mean over [T·N] rows: those of samples that are not there add zero, and the divisor is 3 · n.
// CHECK-LABEL: func.func @forward
// CHECK-SAME:    %[[N:arg[0-9]+]]: tensor<i64> {mpc.name = "samples"
// CHECK:         %[[T:.*]] = mpc.transpose %arg0
// CHECK:         %[[M:.*]] = mpc.mask_samples %[[T]], %[[N]] {axis = 1 : i64, factor = 1 : i64
// CHECK:         %[[F:.*]] = mpc.reshape %[[M]]
// CHECK:         %[[S:.*]] = mpc.reduce sum %[[F]] {axes = array<i64: 0>
// CHECK:         %[[THREE:.*]] = arith.constant dense<3> : tensor<i64>
// CHECK:         %[[ROWS:.*]] = arith.muli %[[N]], %[[THREE]]
// CHECK:         %[[COUNT:.*]] = arith.sitofp %[[ROWS]]
// CHECK:         %[[B:.*]] = mpc.broadcast %[[COUNT]]
// CHECK:         arith.divf %[[S]], %[[B]]
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
  func.func @graph(%x: tensor<4x3x5xf32> {mpc.role = "input", mpc.name = "x"}) -> tensor<5xf32> {
    %s = arith.constant dense<[-1, 5]> : tensor<2xi64>
    %axes = arith.constant dense<0> : tensor<1xi64>
    %0 = onnx.node "Transpose" 13 "swap" (%x) {perm = array<i64: 1, 0, 2>} : (tensor<4x3x5xf32>) -> tensor<3x4x5xf32>
    %1 = onnx.node "Reshape" 14 "flat" (%0, %s) {} : (tensor<3x4x5xf32>, tensor<2xi64>) -> tensor<12x5xf32>
    %2 = onnx.node "ReduceMean" 18 "mean" (%1, %axes) {keepdims = 0 : i64} : (tensor<12x5xf32>, tensor<1xi64>) -> tensor<5xf32>
    return %2 : tensor<5xf32>
  }
}

// -----

// A maximum ignores what is not there; a mean over other axes stays as it is.
// CHECK-LABEL: func.func @forward
// CHECK:         %[[M:.*]] = mpc.mask_samples %arg0, %{{.*}} {axis = 0 : i64, factor = 1 : i64, mpc.node = "max", mpc.op = "ReduceMax", neutral = #mpc<reduction max>}
// CHECK:         mpc.reduce max %[[M]]
// CHECK-NOT:     mpc.mask_samples
// CHECK:         mpc.reduce sum %arg0 {axes = array<i64: 1>
// CHECK:         arith.constant dense<3.000000e+00>
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
  func.func @graph(%x: tensor<4x3xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<3xf32>, tensor<4xf32>) {
    %0 = onnx.node "ReduceMax" 13 "max" (%x) {axes = array<i64: 0>, keepdims = 0 : i64} : (tensor<4x3xf32>) -> tensor<3xf32>
    %1 = onnx.node "ReduceMean" 13 "mean" (%x) {axes = array<i64: 1>, keepdims = 0 : i64} : (tensor<4x3xf32>) -> tensor<4xf32>
    return %0, %1 : tensor<3xf32>, tensor<4xf32>
  }
}

// -----

// A softmax over samples, a product contracted over them, and one whose rows and columns both are samples. A sample that is not there has no part in
// the largest and in the sum, and gets what its copy would have.
// CHECK-LABEL: func.func @forward
// CHECK:         %[[X:.*]] = mpc.mask_samples %arg0, %[[N:arg[0-9]+]] {axis = 0 : i64, {{.*}}neutral = #mpc<reduction max>}
// CHECK:         %[[M:.*]] = mpc.reduce max %[[X]]
// CHECK:         %[[D:.*]] = arith.subf %arg0, %{{.*}} {mpc.node = "log"
// CHECK:         %[[E:.*]] = math.exp %[[D]]
// CHECK:         %[[T:.*]] = mpc.mask_samples %[[E]], %[[N]] {axis = 0 : i64, factor = 1 : i64, mpc.node = "log"
// CHECK:         mpc.reduce sum %[[T]]
// CHECK:         %[[Y:.*]] = arith.subf %[[D]], %{{.*}} {mpc.node = "log"
// CHECK:         %[[A:.*]] = mpc.mask_samples %arg0
// CHECK:         %[[B:.*]] = mpc.mask_samples %arg0
// CHECK:         %[[G:.*]] = mpc.matmul %[[A]], %[[B]] {{.*}}transpose_lhs
// CHECK:         %[[S:.*]] = mpc.matmul %arg0, %arg0 {{.*}}transpose_rhs
// CHECK:         %[[R:.*]] = mpc.mask_samples %[[S]], %[[N]] {axis = 1 : i64, {{.*}}neutral = #mpc<reduction max>}
// CHECK:         %[[P:.*]] = arith.divf %{{.*}}, %{{.*}} {mpc.node = "attend"
// CHECK:         return %[[Y]], %[[G]], %[[P]]
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
  func.func @graph(%x: tensor<4x3xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<4x3xf32>, tensor<3x3xf32>, tensor<4x4xf32>) {
    %0 = onnx.node "LogSoftmax" 13 "log" (%x) {axis = 0 : i64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
    %1 = onnx.node "Gemm" 13 "gram" (%x, %x) {transA = 1 : i64} : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<3x3xf32>
    %2 = onnx.node "Gemm" 13 "similar" (%x, %x) {transB = 1 : i64} : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x4xf32>
    %3 = onnx.node "Softmax" 13 "attend" (%2) {axis = 1 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    return %0, %1, %3 : tensor<4x3xf32>, tensor<3x3xf32>, tensor<4x4xf32>
  }
}

// -----

// Rows that the model makes by the batch size are one per sample, so that their sum is n times the row. For others the ones that are not there are the
// first sample's: who divides by them divides by no zero.
// CHECK-LABEL: func.func @forward
// CHECK:         %[[E:.*]] = mpc.broadcast %{{.*}} {dimensions = array<i64: 1>, mpc.node = "rows"
// CHECK:         %[[F:.*]] = mpc.slice %[[E]] {{.*}} : tensor<4x3xf32> -> tensor<1x3xf32>
// CHECK:         %[[C:.*]] = arith.select %{{.*}}, %[[E]], %{{.*}} {mpc.node = "rows"
// CHECK:         %[[K:.*]] = mpc.mask_samples %[[C]], %{{.*}} {axis = 0 : i64, factor = 1 : i64, keep, mpc.node = "rows"
// CHECK:         %[[M:.*]] = mpc.mask_samples %[[K]], %{{.*}} {axis = 0 : i64, factor = 1 : i64, mpc.node = "total"
// CHECK:         mpc.reduce sum %[[M]] {axes = array<i64: 0>
// CHECK:         %[[KEPT:.*]] = mpc.mask_samples %{{.*}}, %{{.*}} {axis = 0 : i64, factor = 1 : i64, keep, mpc.node = "ones"
// CHECK:         %[[ONES:.*]] = mpc.mask_samples %[[KEPT]], %{{.*}} {axis = 0 : i64, factor = 1 : i64, mpc.node = "count"
// CHECK:         mpc.reduce sum %[[ONES]] {axes = array<i64: 0, 1>
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
  func.func @graph(%x: tensor<4x3xf32> {mpc.role = "input", mpc.name = "x"}, %p: tensor<1x3xf32> {mpc.role = "parameter", mpc.name = "p"})
      -> (tensor<1x3xf32>, tensor<4x3xf32>) {
    %axes = arith.constant dense<0> : tensor<1xi64>
    %0 = onnx.node "Shape" 15 "shape" (%x) {} : (tensor<4x3xf32>) -> tensor<2xi64>
    %1 = onnx.node "Expand" 13 "rows" (%p, %0) {} : (tensor<1x3xf32>, tensor<2xi64>) -> tensor<4x3xf32>
    %2 = onnx.node "ReduceSum" 13 "total" (%1, %axes) {} : (tensor<4x3xf32>, tensor<1xi64>) -> tensor<1x3xf32>
    %3 = onnx.node "ConstantOfShape" 9 "ones" (%0) {value = dense<1.0> : tensor<1xf32>} : (tensor<2xi64>) -> tensor<4x3xf32>
    %4 = onnx.node "ReduceSum" 13 "count" (%3) {keepdims = 0 : i64} : (tensor<4x3xf32>) -> tensor<f32>
    %5 = onnx.node "Div" 14 "share" (%x, %4) {} : (tensor<4x3xf32>, tensor<f32>) -> tensor<4x3xf32>
    return %2, %5 : tensor<1x3xf32>, tensor<4x3xf32>
  }
}

// -----

// An index that no handler takes but as a constant, and a branch: what a smaller batch would do is not in the program.
// CHECK: mpc.tail_refused = "node 'top' (Pad) computes with the batch size"
// CHECK-LABEL: func.func @forward
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
  func.func @graph(%x: tensor<4x3xf32> {mpc.role = "input", mpc.name = "x"}) -> tensor<8x10xf32> {
    %0 = onnx.node "Shape" 15 "shape" (%x) {} : (tensor<4x3xf32>) -> tensor<2xi64>
    %1 = onnx.node "Concat" 13 "pads" (%0, %0) {axis = 0 : i64} : (tensor<2xi64>, tensor<2xi64>) -> tensor<4xi64>
    %half = arith.constant dense<2> : tensor<4xi64>
    %2 = onnx.node "Div" 14 "halves" (%1, %half) {} : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi64>
    %3 = onnx.node "Pad" 13 "top" (%x, %2) {} : (tensor<4x3xf32>, tensor<4xi64>) -> tensor<8x5xf32>
    %s = arith.constant dense<[8, 10]> : tensor<2xi64>
    %4 = onnx.node "Concat" 13 "twice" (%3, %3) {axis = 1 : i64} : (tensor<8x5xf32>, tensor<8x5xf32>) -> tensor<8x10xf32>
    return %4 : tensor<8x10xf32>
  }
}

// -----

// CHECK: mpc.tail_refused = "node 'if' (If) computes with the batch size"
// CHECK-LABEL: func.func @forward
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
  func.func @graph(%x: tensor<4x3xf32> {mpc.role = "input", mpc.name = "x"}) -> tensor<4x3xf32> {
    %first = arith.constant dense<0> : tensor<i64>
    %one = arith.constant dense<1> : tensor<i64>
    %0 = onnx.node "Shape" 15 "shape" (%x) {} : (tensor<4x3xf32>) -> tensor<2xi64>
    %1 = onnx.node "Gather" 13 "n" (%0, %first) {axis = 0 : i64} : (tensor<2xi64>, tensor<i64>) -> tensor<i64>
    %2 = onnx.node "Equal" 13 "single" (%1, %one) {} : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %3 = onnx.node "If" 16 "if" (%2) {} {
      onnx.yield %x : tensor<4x3xf32>
    }, {
      %4 = onnx.node "Neg" 13 "neg" (%x) {} : (tensor<4x3xf32>) -> tensor<4x3xf32>
      onnx.yield %4 : tensor<4x3xf32>
    } : (tensor<i1>) -> tensor<4x3xf32>
    return %3 : tensor<4x3xf32>
  }
}

// -----

// Samples behind a dropout meet their maximum: those that are not there get the first one's result.
// CHECK-LABEL: func.func @forward
// CHECK:         %[[D:.*]] = mpc.dropout %arg0
// CHECK:         %[[F:.*]] = mpc.slice %[[D]] {{.*}} : tensor<4x3xf32> -> tensor<1x3xf32>
// CHECK:         %[[C:.*]] = mpc.stop_gradient
// CHECK:         %[[Y:.*]] = arith.select %{{.*}}, %[[D]], %[[C]]
// CHECK:         %[[M:.*]] = mpc.mask_samples %[[Y]]
// CHECK:         %[[R:.*]] = mpc.reduce max %[[M]]
// CHECK:         %[[B:.*]] = mpc.broadcast %[[R]]
// CHECK:         arith.subf %[[B]], %[[Y]]
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
  func.func @graph(%x: tensor<4x3xf32> {mpc.role = "input", mpc.name = "x"}) -> tensor<4x3xf32> {
    %0 = onnx.node "Dropout" 10 "drop" (%x) {ratio = 0.5 : f32} : (tensor<4x3xf32>) -> tensor<4x3xf32>
    %1 = onnx.node "ReduceMax" 13 "max" (%0) {axes = array<i64: 0>} : (tensor<4x3xf32>) -> tensor<1x3xf32>
    %2 = onnx.node "Sub" 14 "sub" (%1, %0) {} : (tensor<1x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
    return %2 : tensor<4x3xf32>
  }
}

// -----

// Where they do not, as in the mean of a loss, there is nothing to pay.
// CHECK-LABEL: func.func @forward
// CHECK-NOT:     arith.select
// CHECK:         mpc.reduce sum
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
  func.func @graph(%x: tensor<4x3xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<4x3xf32>, tensor<f32>) {
    %0 = onnx.node "Dropout" 10 "drop" (%x) {ratio = 0.5 : f32} : (tensor<4x3xf32>) -> tensor<4x3xf32>
    %1 = onnx.node "ReduceMean" 13 "mean" (%0) {axes = array<i64: 0, 1>, keepdims = 0 : i64} : (tensor<4x3xf32>) -> tensor<f32>
    return %0, %1 : tensor<4x3xf32>, tensor<f32>
  }
}

// RUN: mpc-opt %s --fuse | FileCheck %s

// A gradient of a pool whose windows do not overlap is a quarter of its size in memory: the sums over the batch and what is
// computed from them both read it there, through the mask of the relu before the pool, and nobody stores it.
func.func @shared(%g: tensor<64x14x14x32xf16>, %i: tensor<64x14x14x32xi8>, %x: tensor<64x28x28x32xf16>, %image: tensor<64x28x28x3xf16>)
    -> (tensor<32xf32>, tensor<32x3x3x3xf32>) {
  %zero = arith.constant dense<0.0> : tensor<64x28x28x32xf32>
  %p = mpc.max_pool_grad %g, %i {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, channels_last}
    : (tensor<64x14x14x32xf16>, tensor<64x14x14x32xi8>) -> tensor<64x28x28x32xf16>
  %w = arith.extf %p : tensor<64x28x28x32xf16> to tensor<64x28x28x32xf32>
  %xf = arith.extf %x : tensor<64x28x28x32xf16> to tensor<64x28x28x32xf32>
  %m = arith.cmpf ogt, %xf, %zero : tensor<64x28x28x32xf32>
  %d = arith.select %m, %w, %zero : tensor<64x28x28x32xi1>, tensor<64x28x28x32xf32>
  %q = arith.mulf %d, %xf : tensor<64x28x28x32xf32>
  %s = mpc.reduce sum %q {axes = array<i64: 0, 1, 2>} : tensor<64x28x28x32xf32> -> tensor<32xf32>
  %b = mpc.broadcast %s {dimensions = array<i64: 3>} : tensor<32xf32> -> tensor<64x28x28x32xf32>
  %c = arith.subf %d, %b : tensor<64x28x28x32xf32>
  %h = arith.truncf %c : tensor<64x28x28x32xf32> to tensor<64x28x28x32xf16>
  %dw = mpc.conv_backward_weights %image, %h {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, channels_last}
    : (tensor<64x28x28x3xf16>, tensor<64x28x28x32xf16>) -> tensor<32x3x3x3xf32>
  return %s, %dw : tensor<32xf32>, tensor<32x3x3x3xf32>
}
// CHECK-LABEL: func.func @shared
// CHECK-NEXT:    %[[S:.*]] = mpc.launch @[[SUMS:.*]](%arg{{[012]}}, %arg{{[012]}}, %arg{{[012]}}) :
// CHECK-NEXT:    %[[D:.*]] = mpc.launch @[[MAP:.*]](%{{.*}}) :
// CHECK-NEXT:    mpc.conv_backward_weights %arg3, %[[D]]

// Where four windows cover an element, and halves are cheap to store, it is computed once.
func.func @overlapping(%g: tensor<64x14x14x32xf16>, %i: tensor<64x14x14x32xi8>, %x: tensor<64x28x28x32xf16>, %image: tensor<64x28x28x3xf16>)
    -> (tensor<32xf32>, tensor<32x3x3x3xf32>) {
  %p = mpc.max_pool_grad %g, %i {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, channels_last}
    : (tensor<64x14x14x32xf16>, tensor<64x14x14x32xi8>) -> tensor<64x28x28x32xf16>
  %w = arith.extf %p : tensor<64x28x28x32xf16> to tensor<64x28x28x32xf32>
  %xf = arith.extf %x : tensor<64x28x28x32xf16> to tensor<64x28x28x32xf32>
  %q = arith.mulf %w, %xf : tensor<64x28x28x32xf32>
  %s = mpc.reduce sum %q {axes = array<i64: 0, 1, 2>} : tensor<64x28x28x32xf32> -> tensor<32xf32>
  %b = mpc.broadcast %s {dimensions = array<i64: 3>} : tensor<32xf32> -> tensor<64x28x28x32xf32>
  %c = arith.subf %w, %b : tensor<64x28x28x32xf32>
  %h = arith.truncf %c : tensor<64x28x28x32xf32> to tensor<64x28x28x32xf16>
  %dw = mpc.conv_backward_weights %image, %h {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, channels_last}
    : (tensor<64x28x28x3xf16>, tensor<64x28x28x32xf16>) -> tensor<32x3x3x3xf32>
  return %s, %dw : tensor<32xf32>, tensor<32x3x3x3xf32>
}
// CHECK-LABEL: func.func @overlapping
// CHECK-NEXT:    %[[P:.*]] = mpc.launch @[[ONCE:max_pool_grad_[0-9]+]](%arg0, %arg1)
// CHECK-NEXT:    %[[V:.*]] = mpc.reshape %[[P]]
// CHECK:         %[[S:.*]] = mpc.launch @mul_sum_{{[0-9]+}}(%[[V]], %{{.*}})
// CHECK-NEXT:    mpc.launch @sub_{{[0-9]+}}(%[[V]], %[[S]])

// One reader: the gradient and the sum are one kernel, however many windows cover an element.
func.func @one_reader(%g: tensor<64x14x14x32xf32>, %i: tensor<64x14x14x32xi8>) -> tensor<32xf32> {
  %p = mpc.max_pool_grad %g, %i {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, channels_last}
    : (tensor<64x14x14x32xf32>, tensor<64x14x14x32xi8>) -> tensor<64x28x28x32xf32>
  %q = arith.mulf %p, %p : tensor<64x28x28x32xf32>
  %s = mpc.reduce sum %q {axes = array<i64: 0, 1, 2>} : tensor<64x28x28x32xf32> -> tensor<32xf32>
  return %s : tensor<32xf32>
}
// CHECK-LABEL: func.func @one_reader
// CHECK-NEXT:    %[[S:.*]] = mpc.launch @[[ONE:.*]](%arg0, %arg1)
// CHECK-NEXT:    return %[[S]]

// A cotangent that comes with the channels first is moved once for both kernels that read it.
func.func @transposed(%a: tensor<64x128xf16>, %fc: tensor<128x3136xf16>, %i: tensor<64x7x7x64xi8>, %x: tensor<64x14x14x64xf16>)
    -> (tensor<64xf32>, tensor<64x14x14x64xf16>) {
  %g = mpc.matmul %a, %fc : (tensor<64x128xf16>, tensor<128x3136xf16>) -> tensor<64x3136xf16>
  %r = mpc.reshape %g : tensor<64x3136xf16> -> tensor<64x64x7x7xf16>
  %t = mpc.transpose %r {permutation = array<i64: 0, 2, 3, 1>} : tensor<64x64x7x7xf16> -> tensor<64x7x7x64xf16>
  %p = mpc.max_pool_grad %t, %i {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, channels_last}
    : (tensor<64x7x7x64xf16>, tensor<64x7x7x64xi8>) -> tensor<64x14x14x64xf16>
  %w = arith.extf %p : tensor<64x14x14x64xf16> to tensor<64x14x14x64xf32>
  %xf = arith.extf %x : tensor<64x14x14x64xf16> to tensor<64x14x14x64xf32>
  %q = arith.mulf %w, %xf : tensor<64x14x14x64xf32>
  %s = mpc.reduce sum %q {axes = array<i64: 0, 1, 2>} : tensor<64x14x14x64xf32> -> tensor<64xf32>
  %b = mpc.broadcast %s {dimensions = array<i64: 3>} : tensor<64xf32> -> tensor<64x14x14x64xf32>
  %c = arith.subf %w, %b : tensor<64x14x14x64xf32>
  %h = arith.truncf %c : tensor<64x14x14x64xf32> to tensor<64x14x14x64xf16>
  return %s, %h : tensor<64xf32>, tensor<64x14x14x64xf16>
}
// CHECK-LABEL: func.func @transposed
// CHECK:         %[[G:.*]] = mpc.matmul
// CHECK:         %[[T:.*]] = mpc.launch @transpose_{{[0-9]+}}(%{{.*}}) : (tensor<64x64x49xf16>) -> tensor<64x49x64xf16>
// CHECK-NEXT:    %[[V:.*]] = mpc.reshape %[[T]]
// CHECK-NEXT:    %[[S:.*]] = mpc.launch @{{.*}}(%[[V]], %arg2, %arg3)
// CHECK-NEXT:    mpc.launch @{{.*}}(%[[V]], %arg2, %[[S]])

// One kernel reads it where it is.
func.func @transposed_for_one(%a: tensor<64x128xf16>, %fc: tensor<128x3136xf16>, %i: tensor<64x7x7x64xi8>) -> tensor<64x14x14x64xf16> {
  %g = mpc.matmul %a, %fc : (tensor<64x128xf16>, tensor<128x3136xf16>) -> tensor<64x3136xf16>
  %r = mpc.reshape %g : tensor<64x3136xf16> -> tensor<64x64x7x7xf16>
  %t = mpc.transpose %r {permutation = array<i64: 0, 2, 3, 1>} : tensor<64x64x7x7xf16> -> tensor<64x7x7x64xf16>
  %p = mpc.max_pool_grad %t, %i {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, channels_last}
    : (tensor<64x7x7x64xf16>, tensor<64x7x7x64xi8>) -> tensor<64x14x14x64xf16>
  return %p : tensor<64x14x14x64xf16>
}
// CHECK-LABEL: func.func @transposed_for_one
// CHECK:         %[[G:.*]] = mpc.matmul
// CHECK-NEXT:    %[[V:.*]] = mpc.reshape %[[G]] : tensor<64x3136xf16> -> tensor<64x64x7x7xf16>
// CHECK-NEXT:    mpc.launch @transpose_max_pool_grad_{{[0-9]+}}(%[[V]], %arg2)

// The gradient of a global mean is one value per channel: sums and maps read that.
func.func @global_mean(%g: tensor<64x1x1x32xf16>, %x: tensor<64x8x8x32xf16>) -> (tensor<32xf32>, tensor<64x8x8x32xf16>) {
  %p = mpc.average_pool_grad %g {kernel = array<i64: 8, 8>, strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, channels_last}
    : (tensor<64x1x1x32xf16>) -> tensor<64x8x8x32xf16>
  %w = arith.extf %p : tensor<64x8x8x32xf16> to tensor<64x8x8x32xf32>
  %xf = arith.extf %x : tensor<64x8x8x32xf16> to tensor<64x8x8x32xf32>
  %q = arith.mulf %w, %xf : tensor<64x8x8x32xf32>
  %s = mpc.reduce sum %q {axes = array<i64: 0, 1, 2>} : tensor<64x8x8x32xf32> -> tensor<32xf32>
  %b = mpc.broadcast %s {dimensions = array<i64: 3>} : tensor<32xf32> -> tensor<64x8x8x32xf32>
  %c = arith.subf %w, %b : tensor<64x8x8x32xf32>
  %h = arith.truncf %c : tensor<64x8x8x32xf32> to tensor<64x8x8x32xf16>
  return %s, %h : tensor<32xf32>, tensor<64x8x8x32xf16>
}
// CHECK-LABEL: func.func @global_mean
// CHECK-NEXT:    %[[S:.*]] = mpc.launch @{{.*}}(%arg0, %arg1)
// CHECK-NEXT:    mpc.launch @{{.*}}(%arg0, %[[S]])

// CHECK:       func.func private @[[SUMS]]
// CHECK-SAME:    #mpc.kernel<column, domain = [64, 28, 28, 32], split = 3, aliases = [-1]>
// CHECK:         mpc.max_pool_grad
// CHECK:         mpc.reduce sum
// CHECK:       func.func private @[[MAP]]
// CHECK-SAME:    #mpc.kernel<map, domain = [64, 28, 28, 32]
// CHECK:         mpc.max_pool_grad
// CHECK:       func.func private @[[ONCE]]
// CHECK-SAME:    #mpc.kernel<map, domain = [64, 28, 28, 32]
// CHECK:       func.func private @[[ONE]]
// CHECK-SAME:    #mpc.kernel<column, domain = [64, 28, 28, 32], split = 3, aliases = [-1]>
// CHECK:         mpc.max_pool_grad

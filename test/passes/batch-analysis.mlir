// RUN: mpc-opt %s --split-input-file --prepare-training --attach-loss='loss=cross-entropy class-axis=-1' | FileCheck %s

// Samples on axis 1 of the output: the loss brings them to axis 0, three rows of time each.
// CHECK-NOT: mpc.tail_refused
// CHECK-LABEL: func.func @forward
// CHECK-SAME: tensor<3x4xi64> {mpc.name = "labels", mpc.role = "labels"}
// CHECK: %[[Y:.*]] = mpc.transpose %{{.*}} permutation = array<i64: 1, 0, 2>} : tensor<3x4x5xf32> -> tensor<4x3x5xf32>
// CHECK: %[[L:.*]] = mpc.transpose %{{.*}} permutation = array<i64: 1, 0>} : tensor<3x4xi64> -> tensor<4x3xi64>
// CHECK: mpc.cross_entropy %[[Y]], %[[L]], %{{.*}} {class_axis = 2
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 1 : i64}} {
func.func @forward(%x: tensor<3x4x5xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<5x5xf32> {mpc.role = "parameter", mpc.name = "w"})
    -> (tensor<3x4x5xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.reshape %x : tensor<3x4x5xf32> -> tensor<12x5xf32>
  %1 = mpc.matmul %0, %w : (tensor<12x5xf32>, tensor<5x5xf32>) -> tensor<12x5xf32>
  %2 = mpc.reshape %1 : tensor<12x5xf32> -> tensor<3x4x5xf32>
  return %2 : tensor<3x4x5xf32>
}
}

// -----

// Heads merged with the batch and split off again: two rows per sample.
// CHECK-NOT: mpc.tail_refused
// CHECK: mpc.cross_entropy {{.*}} factor = 2 : i64
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
func.func @forward(%x: tensor<4x6xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<8x3xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.reshape %x : tensor<4x6xf32> -> tensor<8x3xf32>
  return %0 : tensor<8x3xf32>
}
}

// -----

// A sum over the batch that nobody has masked mixes samples: a smaller last batch would come out wrong, and the trainer is told why.
// CHECK: mpc.tail_refused = "node 'total' (ReduceSum) mixes the samples of a batch"
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
func.func @forward(%x: tensor<4x6xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<4x6xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.reduce sum %x {axes = array<i64: 0>, mpc.node = "total", mpc.op = "ReduceSum"} : tensor<4x6xf32> -> tensor<6xf32>
  %1 = mpc.broadcast %0 {dimensions = array<i64: 1>} : tensor<6xf32> -> tensor<4x6xf32>
  %2 = arith.subf %x, %1 : tensor<4x6xf32>
  return %2 : tensor<4x6xf32>
}
}

// -----

// Two rows per sample are normalized: the rows that count are those of the samples that are there.
// CHECK: mpc.output_samples = {y = array<i64: 0, 1>}}
// CHECK: %[[TWO:.*]] = arith.constant dense<2> : tensor<i64>
// CHECK: %[[ROWS:.*]] = arith.muli %{{.*}}, %[[TWO]] {mpc.node = "bn"
// CHECK: mpc.batch_norm %{{.*}}, %{{.*}}, %{{.*}}, %[[ROWS]]
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
func.func @forward(%x: tensor<4x6xf32> {mpc.role = "input", mpc.name = "x"}, %s: tensor<3xf32> {mpc.role = "parameter", mpc.name = "s"},
    %m: tensor<3xf32> {mpc.role = "statistic", mpc.name = "m"}, %v: tensor<3xf32> {mpc.role = "statistic", mpc.name = "v"})
    -> (tensor<8x3xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.reshape %x : tensor<4x6xf32> -> tensor<8x3xf32>
  %1 = mpc.batch_norm_inference %0, %s, %s, %m, %v {epsilon = 1.0e-5, momentum = 0.9, mpc.node = "bn", mpc.op = "BatchNormalization"}
    : (tensor<8x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<8x3xf32>
  return %1 : tensor<8x3xf32>
}
}

// -----

// A normalization whose channels are the samples has a scale for each of a whole batch, and no smaller one is possible.
// CHECK: mpc.tail_refused = "node 'bn' (BatchNormalization) combines the samples with numbers made for a whole batch"
// CHECK: %[[ALL:.*]] = arith.constant dense<3> : tensor<i64>
// CHECK: mpc.batch_norm %{{.*}}, %{{.*}}, %{{.*}}, %[[ALL]]
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
func.func @forward(%x: tensor<4x3xf32> {mpc.role = "input", mpc.name = "x"}, %s: tensor<4xf32> {mpc.role = "parameter", mpc.name = "s"},
    %m: tensor<4xf32> {mpc.role = "statistic", mpc.name = "m"}, %v: tensor<4xf32> {mpc.role = "statistic", mpc.name = "v"})
    -> (tensor<4x3xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.transpose %x {permutation = array<i64: 1, 0>} : tensor<4x3xf32> -> tensor<3x4xf32>
  %1 = mpc.batch_norm_inference %0, %s, %s, %m, %v {epsilon = 1.0e-5, momentum = 0.9, mpc.node = "bn", mpc.op = "BatchNormalization"}
    : (tensor<3x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  %2 = mpc.transpose %1 {permutation = array<i64: 1, 0>} : tensor<3x4xf32> -> tensor<4x3xf32>
  return %2 : tensor<4x3xf32>
}
}

// -----

// A sum of what is masked belongs to no sample any more; where the samples are in each output is told to whoever joins batches.
// CHECK: mpc.output_samples = {s = array<i64: -1, 1>, t = array<i64: 1, 1>, u = array<i64: 0, 3>, v = array<i64: -2, 1>, y = array<i64: 0, 1>}}
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
func.func @forward(%x: tensor<4x3xf32> {mpc.role = "input", mpc.name = "x"}, %n: tensor<i64> {mpc.role = "samples", mpc.name = "samples"})
    -> (tensor<4x3xf32> {mpc.role = "output", mpc.name = "y"}, tensor<3xf32> {mpc.role = "output", mpc.name = "s"},
        tensor<3x4xf32> {mpc.role = "output", mpc.name = "t"}, tensor<12xf32> {mpc.role = "output", mpc.name = "u"},
        tensor<4x4xf32> {mpc.role = "output", mpc.name = "v"}) {
  %0 = mpc.mask_samples %x, %n {axis = 0 : i64, factor = 1 : i64} : tensor<4x3xf32>, tensor<i64>
  %s = mpc.reduce sum %0 {axes = array<i64: 0>} : tensor<4x3xf32> -> tensor<3xf32>
  %t = mpc.transpose %x {permutation = array<i64: 1, 0>} : tensor<4x3xf32> -> tensor<3x4xf32>
  %u = mpc.reshape %t : tensor<3x4xf32> -> tensor<12xf32>
  %v = mpc.matmul %x, %x {transpose_rhs} : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x4xf32>
  %1 = mpc.broadcast %s {dimensions = array<i64: 1>} : tensor<3xf32> -> tensor<4x3xf32>
  %y = arith.subf %x, %1 : tensor<4x3xf32>
  return %y, %s, %t, %u, %v : tensor<4x3xf32>, tensor<3xf32>, tensor<3x4xf32>, tensor<12xf32>, tensor<4x4xf32>
}
}

// -----

// Masked for a maximum, a sum is not exact.
// CHECK: mpc.tail_refused = "node 'total' (ReduceSum) mixes the samples of a batch"
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
func.func @forward(%x: tensor<4x6xf32> {mpc.role = "input", mpc.name = "x"}, %n: tensor<i64> {mpc.role = "samples", mpc.name = "samples"})
    -> (tensor<4x6xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.mask_samples %x, %n {axis = 0 : i64, factor = 1 : i64, neutral = #mpc<reduction max>} : tensor<4x6xf32>, tensor<i64>
  %1 = mpc.reduce sum %0 {axes = array<i64: 0>, mpc.node = "total", mpc.op = "ReduceSum"} : tensor<4x6xf32> -> tensor<6xf32>
  %2 = mpc.broadcast %1 {dimensions = array<i64: 1>} : tensor<6xf32> -> tensor<4x6xf32>
  %3 = arith.subf %x, %2 : tensor<4x6xf32>
  return %3 : tensor<4x6xf32>
}
}

// -----

// A parameter with a row for each sample of a whole batch has one too many for a smaller one.
// CHECK: mpc.tail_refused = "node 'sum' (Add) combines the samples with numbers made for a whole batch"
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
func.func @forward(%x: tensor<4x6xf32> {mpc.role = "input", mpc.name = "x"}, %p: tensor<4x6xf32> {mpc.role = "parameter", mpc.name = "p"})
    -> (tensor<4x6xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = arith.addf %x, %p {mpc.node = "sum", mpc.op = "Add"} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}
}

// -----

// So has a stack of matrices, and a bias of columns that are samples.
// CHECK: mpc.tail_refused = "node 'stack' (MatMul) combines the samples with numbers made for a whole batch"
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
func.func @forward(%x: tensor<4x2x6xf32> {mpc.role = "input", mpc.name = "x"}, %p: tensor<4x6x5xf32> {mpc.role = "parameter", mpc.name = "p"})
    -> (tensor<4x2x5xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.matmul %x, %p {mpc.node = "stack", mpc.op = "MatMul"} : (tensor<4x2x6xf32>, tensor<4x6x5xf32>) -> tensor<4x2x5xf32>
  return %0 : tensor<4x2x5xf32>
}
}

// -----

// CHECK: mpc.tail_refused = "node 'turned' (Gemm) combines the samples with numbers made for a whole batch"
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
func.func @forward(%x: tensor<4x6xf32> {mpc.role = "input", mpc.name = "x"}, %p: tensor<5x6xf32> {mpc.role = "parameter", mpc.name = "p"},
    %b: tensor<4xf32> {mpc.role = "parameter", mpc.name = "b"}) -> (tensor<5x4xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.matmul %p, %x bias %b {transpose_rhs, mpc.node = "turned", mpc.op = "Gemm"} : (tensor<5x6xf32>, tensor<4x6xf32>, tensor<4xf32>) -> tensor<5x4xf32>
  return %0 : tensor<5x4xf32>
}
}

// -----

// And so has what is joined with the samples along another axis.
// CHECK: mpc.tail_refused = "node 'beside' (Concat) combines the samples with numbers made for a whole batch"
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
func.func @forward(%x: tensor<4x6xf32> {mpc.role = "input", mpc.name = "x"}, %p: tensor<4x1xf32> {mpc.role = "parameter", mpc.name = "p"})
    -> (tensor<4x7xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.concat %x, %p {axis = 1 : i64, mpc.node = "beside", mpc.op = "Concat"} : (tensor<4x6xf32>, tensor<4x1xf32>) -> tensor<4x7xf32>
  return %0 : tensor<4x7xf32>
}
}

// -----

// What says the same to each sample goes with any number of them: rows of a constant that are equal, a table behind a
// broadcast, a reshape, a gather at such positions; eight of ten rows of a broadcast.
// CHECK: mpc.output_samples = {y = array<i64: 0, 1>}}
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
func.func @forward(%x: tensor<4x2x3xf32> {mpc.role = "input", mpc.name = "x"}, %p: tensor<2x3xf32> {mpc.role = "parameter", mpc.name = "p"},
    %t: tensor<9x3xf32> {mpc.role = "parameter", mpc.name = "t"}, %e: tensor<3xf32> {mpc.role = "parameter", mpc.name = "e"})
    -> (tensor<8x3xf32> {mpc.role = "output", mpc.name = "y"}) {
  %rows = mpc.reshape %x : tensor<4x2x3xf32> -> tensor<8x3xf32>
  %c = arith.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<8x3xf32>
  %0 = arith.addf %rows, %c {mpc.node = "constant", mpc.op = "Add"} : tensor<8x3xf32>
  %all = mpc.broadcast %p {dimensions = array<i64: 1, 2>} : tensor<2x3xf32> -> tensor<4x2x3xf32>
  %flat = mpc.reshape %all : tensor<4x2x3xf32> -> tensor<8x3xf32>
  %1 = arith.addf %0, %flat {mpc.node = "table", mpc.op = "Add"} : tensor<8x3xf32>
  %i = arith.constant dense<[7, 1, 7, 1, 7, 1, 7, 1]> : tensor<8xi64>
  %g = mpc.gather %t, %i {axis = 0 : i64} : tensor<9x3xf32>, tensor<8xi64> -> tensor<8x3xf32>
  %2 = arith.addf %1, %g {mpc.node = "gathered", mpc.op = "Add"} : tensor<8x3xf32>
  %many = mpc.broadcast %e {dimensions = array<i64: 1>} : tensor<3xf32> -> tensor<10x3xf32>
  %some = mpc.slice %many {starts = array<i64: 1, 0>, steps = array<i64: 1, 1>} : tensor<10x3xf32> -> tensor<8x3xf32>
  %neg = arith.negf %some : tensor<8x3xf32>
  %3 = arith.addf %2, %neg {mpc.node = "sliced", mpc.op = "Add"} : tensor<8x3xf32>
  return %3 : tensor<8x3xf32>
}
}

// -----

// Rows that differ anywhere are not the same.
// CHECK: mpc.tail_refused = "node 'constant' (Add) combines the samples with numbers made for a whole batch"
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
func.func @forward(%x: tensor<4x2xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<4x2xf32> {mpc.role = "output", mpc.name = "y"}) {
  %c = arith.constant dense<[[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [1.0, 3.0]]> : tensor<4x2xf32>
  %0 = arith.addf %x, %c {mpc.node = "constant", mpc.op = "Add"} : tensor<4x2xf32>
  return %0 : tensor<4x2xf32>
}
}

// -----

// What is computed of such values, row by row, says the same to each sample too: a product, a convolution, a softmax, a norm, noise;
// and an argument of which the importer says so.
// CHECK: mpc.output_samples = {y = array<i64: 0, 1>}}
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
func.func @forward(%x: tensor<4x2x6x6xf32> {mpc.role = "input", mpc.name = "x"}, %q: tensor<6xf32> {mpc.role = "parameter", mpc.name = "q"},
    %w: tensor<6x6xf32> {mpc.role = "parameter", mpc.name = "w"}, %s: tensor<6xf32> {mpc.role = "parameter", mpc.name = "s"},
    %f: tensor<2x2x1x1xf32> {mpc.role = "parameter", mpc.name = "f"}, %m: tensor<4x2x6x6xf32> {mpc.role = "constant", mpc.name = "m", mpc.repeated = array<i64: 0>})
    -> (tensor<4x2x6x6xf32> {mpc.role = "output", mpc.name = "y"}) {
  %rows = mpc.broadcast %q {dimensions = array<i64: 3>} : tensor<6xf32> -> tensor<4x2x6x6xf32>
  %ws = mpc.broadcast %w {dimensions = array<i64: 2, 3>} : tensor<6x6xf32> -> tensor<4x2x6x6xf32>
  %h = mpc.matmul %rows, %ws : (tensor<4x2x6x6xf32>, tensor<4x2x6x6xf32>) -> tensor<4x2x6x6xf32>
  %n, %mean, %rstd = mpc.layer_norm %h, %s {axis = 3 : i64, epsilon = 1.0e-5} : (tensor<4x2x6x6xf32>, tensor<6xf32>) -> (tensor<4x2x6x6xf32>, tensor<4x2x6xf32>, tensor<4x2x6xf32>)
  %p = mpc.softmax %n {axis = 3 : i64} : tensor<4x2x6x6xf32>
  %c = mpc.conv %p, %f {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>}
    : (tensor<4x2x6x6xf32>, tensor<2x2x1x1xf32>) -> tensor<4x2x6x6xf32>
  %flat = mpc.reshape %c : tensor<4x2x6x6xf32> -> tensor<48x6xf32>
  %z = mpc.matmul %flat, %w {transpose_rhs} : (tensor<48x6xf32>, tensor<6x6xf32>) -> tensor<48x6xf32>
  %k = mpc.reshape %z : tensor<48x6xf32> -> tensor<4x2x6x6xf32>
  %0 = arith.addf %x, %k {mpc.node = "computed", mpc.op = "Add"} : tensor<4x2x6x6xf32>
  %1 = arith.mulf %0, %m {mpc.node = "told", mpc.op = "Mul"} : tensor<4x2x6x6xf32>
  return %1 : tensor<4x2x6x6xf32>
}
}

// -----

// A softmax over the samples' axis asks how many there are.
// CHECK: mpc.tail_refused = "node 'over' (Add) combines the samples with numbers made for a whole batch"
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
func.func @forward(%x: tensor<4x6xf32> {mpc.role = "input", mpc.name = "x"}, %q: tensor<6xf32> {mpc.role = "parameter", mpc.name = "q"})
    -> (tensor<4x6xf32> {mpc.role = "output", mpc.name = "y"}) {
  %rows = mpc.broadcast %q {dimensions = array<i64: 1>} : tensor<6xf32> -> tensor<4x6xf32>
  %p = mpc.softmax %rows {axis = 0 : i64} : tensor<4x6xf32>
  %0 = arith.addf %x, %p {mpc.node = "over", mpc.op = "Add"} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}
}

// -----

// A normalization right behind another counts the samples that are there, as that one does.
// CHECK: mpc.batch_norm %{{.*}}, %[[COUNT:arg[0-9]+]] {{{.*}}mpc.node = "first"
// CHECK: mpc.batch_norm %{{.*}}, %[[COUNT]] {{{.*}}mpc.node = "second"
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
func.func @forward(%x: tensor<4x3xf32> {mpc.role = "input", mpc.name = "x"}, %s: tensor<3xf32> {mpc.role = "parameter", mpc.name = "s"},
    %m: tensor<3xf32> {mpc.role = "statistic", mpc.name = "m"}, %v: tensor<3xf32> {mpc.role = "statistic", mpc.name = "v"},
    %k: tensor<3xf32> {mpc.role = "statistic", mpc.name = "k"}, %w: tensor<3xf32> {mpc.role = "statistic", mpc.name = "w"})
    -> (tensor<4x3xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.batch_norm_inference %x, %s, %s, %m, %v {epsilon = 1.0e-5, momentum = 0.9, mpc.node = "first", mpc.op = "BatchNormalization"}
    : (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<4x3xf32>
  %1 = mpc.batch_norm_inference %0, %s, %s, %k, %w {epsilon = 1.0e-5, momentum = 0.9, mpc.node = "second", mpc.op = "BatchNormalization"}
    : (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<4x3xf32>
  return %1 : tensor<4x3xf32>
}
}

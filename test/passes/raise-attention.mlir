// RUN: mpc-opt %s --raise-attention --canonicalize | FileCheck %s

// As BERT is exported, in half precision: scores divided, a mask of f32 that is repeated along heads and queries. The operands come as projections
// make them, so that nothing is transposed any more; the roundings of scores and weights are gone with them.
// CHECK-LABEL: func.func @masked
// CHECK-SAME: (%[[Q:.*]]: tensor<8x64x2x16xf16>, %[[K:.*]]: tensor<8x64x2x16xf16>, %[[V:.*]]: tensor<8x64x2x16xf16>, %[[M:.*]]: tensor<8x64xf32>
// CHECK-NEXT: %[[O:[^,]*]], %{{.*}} = mpc.attention %[[Q]], %[[K]], %[[V]] bias %[[M]] {bias_dimensions = array<i64: 0, 3>, mpc.node = "context", mpc.op = "MatMul", scale = 2.500000e-01 : f32}
// CHECK-NEXT: return %[[O]]
func.func @masked(%q: tensor<8x64x2x16xf16>, %k: tensor<8x64x2x16xf16>, %v: tensor<8x64x2x16xf16>, %mask: tensor<8x64xf32>) -> tensor<8x64x2x16xf16> {
  %four = arith.constant dense<4.0> : tensor<8x2x64x64xf32>
  %0 = mpc.transpose %q {permutation = array<i64: 0, 2, 1, 3>} : tensor<8x64x2x16xf16> -> tensor<8x2x64x16xf16>
  %1 = mpc.transpose %k {permutation = array<i64: 0, 2, 3, 1>} : tensor<8x64x2x16xf16> -> tensor<8x2x16x64xf16>
  %2 = mpc.transpose %v {permutation = array<i64: 0, 2, 1, 3>} : tensor<8x64x2x16xf16> -> tensor<8x2x64x16xf16>
  %3 = mpc.matmul %0, %1 : (tensor<8x2x64x16xf16>, tensor<8x2x16x64xf16>) -> tensor<8x2x64x64xf16>
  %4 = arith.extf %3 : tensor<8x2x64x64xf16> to tensor<8x2x64x64xf32>
  %5 = arith.divf %4, %four : tensor<8x2x64x64xf32>
  %6 = arith.truncf %5 : tensor<8x2x64x64xf32> to tensor<8x2x64x64xf16>
  %7 = arith.extf %6 : tensor<8x2x64x64xf16> to tensor<8x2x64x64xf32>
  %8 = mpc.broadcast %mask {dimensions = array<i64: 0, 3>} : tensor<8x64xf32> -> tensor<8x2x64x64xf32>
  %9 = arith.addf %7, %8 : tensor<8x2x64x64xf32>
  %10 = mpc.softmax %9 {axis = 3 : i64} : tensor<8x2x64x64xf32>
  %11 = arith.truncf %10 : tensor<8x2x64x64xf32> to tensor<8x2x64x64xf16>
  %12 = mpc.matmul %11, %2 {mpc.node = "context", mpc.op = "MatMul"} : (tensor<8x2x64x64xf16>, tensor<8x2x64x16xf16>) -> tensor<8x2x64x16xf16>
  %13 = mpc.transpose %12 {permutation = array<i64: 0, 2, 1, 3>} : tensor<8x2x64x16xf16> -> tensor<8x64x2x16xf16>
  return %13 : tensor<8x64x2x16xf16>
}

// As PyTorch writes its scaled dot product: the root of the factor on the query and on the key, each rounded. Both go to the scores.
// CHECK-LABEL: func.func @factors_on_operands
// CHECK: mpc.attention %arg0, %arg1, %arg2 bias %{{.*}} {bias_dimensions = array<i64: 2, 3>, scale = 2.500000e-01 : f32}
// CHECK-NOT: arith.mulf
func.func @factors_on_operands(%q: tensor<2x4x2x8xf16>, %k: tensor<2x4x2x8xf16>, %v: tensor<2x4x2x8xf16>) -> tensor<2x4x2x8xf16> {
  %half = arith.constant dense<0.5> : tensor<2x2x4x8xf32>
  %turned = arith.constant dense<0.5> : tensor<2x2x8x4xf32>
  %causal = arith.constant dense<[[0.0, 0xFF800000, 0xFF800000, 0xFF800000], [0.0, 0.0, 0xFF800000, 0xFF800000], [0.0, 0.0, 0.0, 0xFF800000], [0.0, 0.0, 0.0, 0.0]]> : tensor<4x4xf32>
  %0 = mpc.transpose %q {permutation = array<i64: 0, 2, 1, 3>} : tensor<2x4x2x8xf16> -> tensor<2x2x4x8xf16>
  %1 = mpc.transpose %k {permutation = array<i64: 0, 2, 3, 1>} : tensor<2x4x2x8xf16> -> tensor<2x2x8x4xf16>
  %2 = mpc.transpose %v {permutation = array<i64: 0, 2, 1, 3>} : tensor<2x4x2x8xf16> -> tensor<2x2x4x8xf16>
  %3 = arith.extf %0 : tensor<2x2x4x8xf16> to tensor<2x2x4x8xf32>
  %4 = arith.mulf %3, %half : tensor<2x2x4x8xf32>
  %5 = arith.truncf %4 : tensor<2x2x4x8xf32> to tensor<2x2x4x8xf16>
  %6 = arith.extf %1 : tensor<2x2x8x4xf16> to tensor<2x2x8x4xf32>
  %7 = arith.mulf %6, %turned : tensor<2x2x8x4xf32>
  %8 = arith.truncf %7 : tensor<2x2x8x4xf32> to tensor<2x2x8x4xf16>
  %9 = mpc.matmul %5, %8 : (tensor<2x2x4x8xf16>, tensor<2x2x8x4xf16>) -> tensor<2x2x4x4xf16>
  %10 = arith.extf %9 : tensor<2x2x4x4xf16> to tensor<2x2x4x4xf32>
  %11 = mpc.broadcast %causal {dimensions = array<i64: 2, 3>} : tensor<4x4xf32> -> tensor<2x2x4x4xf32>
  %12 = arith.addf %10, %11 : tensor<2x2x4x4xf32>
  %13 = arith.truncf %12 : tensor<2x2x4x4xf32> to tensor<2x2x4x4xf16>
  %14 = mpc.softmax %13 {axis = 3 : i64} : tensor<2x2x4x4xf16>
  %15 = mpc.matmul %14, %2 : (tensor<2x2x4x4xf16>, tensor<2x2x4x8xf16>) -> tensor<2x2x4x8xf16>
  %16 = mpc.transpose %15 {permutation = array<i64: 0, 2, 1, 3>} : tensor<2x2x4x8xf16> -> tensor<2x4x2x8xf16>
  return %16 : tensor<2x4x2x8xf16>
}

// One head, without a dimension of its own.
// CHECK-LABEL: func.func @one_head
// CHECK-COUNT-3: mpc.reshape %{{.*}} : tensor<2x{{.*}}xf32> -> tensor<2x{{.*}}x1x{{.*}}xf32>
// CHECK: mpc.attention %{{.*}} bias %arg3 {bias_dimensions = array<i64: 2, 3>, scale = 1.000000e+00 : f32}
// CHECK-SAME: -> (tensor<2x4x1x3xf32>, tensor<2x1x4xf32>, tensor<2x2x1x4xf32>)
// CHECK: mpc.reshape %{{.*}} : tensor<2x4x1x3xf32> -> tensor<2x4x3xf32>
func.func @one_head(%q: tensor<2x4x8xf32>, %k: tensor<2x5x8xf32>, %v: tensor<2x5x3xf32>, %bias: tensor<4x5xf32>) -> tensor<2x4x3xf32> {
  %0 = mpc.matmul %q, %k {transpose_rhs} : (tensor<2x4x8xf32>, tensor<2x5x8xf32>) -> tensor<2x4x5xf32>
  %1 = mpc.broadcast %bias {dimensions = array<i64: 1, 2>} : tensor<4x5xf32> -> tensor<2x4x5xf32>
  %2 = arith.addf %1, %0 : tensor<2x4x5xf32>
  %3 = mpc.softmax %2 {axis = 2 : i64} : tensor<2x4x5xf32>
  %4 = mpc.matmul %3, %v : (tensor<2x4x5xf32>, tensor<2x5x3xf32>) -> tensor<2x4x3xf32>
  return %4 : tensor<2x4x3xf32>
}

// A mask of booleans chooses between the scores and -∞: a bias of the mask's size.
// CHECK-LABEL: func.func @chosen
// CHECK: %[[B:.*]] = arith.select %arg3, %{{.*}}, %{{.*}} : tensor<2x5xi1>, tensor<2x5xf32>
// CHECK: mpc.attention %{{.*}} bias %[[B]] {bias_dimensions = array<i64: 0, 3>, scale = 5.000000e-01 : f32}
func.func @chosen(%q: tensor<2x4x8xf32>, %k: tensor<2x5x8xf32>, %v: tensor<2x5x3xf32>, %mask: tensor<2x5xi1>) -> tensor<2x4x3xf32> {
  %never = arith.constant dense<0xFF800000> : tensor<2x4x5xf32>
  %half = arith.constant dense<0.5> : tensor<2x4x5xf32>
  %0 = mpc.matmul %q, %k {transpose_rhs} : (tensor<2x4x8xf32>, tensor<2x5x8xf32>) -> tensor<2x4x5xf32>
  %1 = arith.mulf %0, %half : tensor<2x4x5xf32>
  %2 = mpc.broadcast %mask {dimensions = array<i64: 0, 2>} : tensor<2x5xi1> -> tensor<2x4x5xi1>
  %3 = arith.select %2, %1, %never : tensor<2x4x5xi1>, tensor<2x4x5xf32>
  %4 = mpc.softmax %3 {axis = 2 : i64} : tensor<2x4x5xf32>
  %5 = mpc.matmul %4, %v : (tensor<2x4x5xf32>, tensor<2x5x3xf32>) -> tensor<2x4x3xf32>
  return %5 : tensor<2x4x3xf32>
}

// With a low number in its place, only where it is known that no row has nothing else: there all weights would be equal.
// CHECK-LABEL: func.func @low_where_rows_keep
// CHECK: mpc.attention
// CHECK-LABEL: func.func @low_where_a_row_may_be_empty
// CHECK-NOT: mpc.attention
// CHECK: return
func.func @low_where_rows_keep(%q: tensor<1x2x8xf32>, %k: tensor<1x2x8xf32>, %v: tensor<1x2x3xf32>) -> tensor<1x2x3xf32> {
  %low = arith.constant dense<-1.0e+9> : tensor<1x2x2xf32>
  %hidden = arith.constant dense<[[false, true], [false, false]]> : tensor<2x2xi1>
  %0 = mpc.matmul %q, %k {transpose_rhs} : (tensor<1x2x8xf32>, tensor<1x2x8xf32>) -> tensor<1x2x2xf32>
  %1 = mpc.broadcast %hidden {dimensions = array<i64: 1, 2>} : tensor<2x2xi1> -> tensor<1x2x2xi1>
  %2 = arith.select %1, %low, %0 : tensor<1x2x2xi1>, tensor<1x2x2xf32>
  %3 = mpc.softmax %2 {axis = 2 : i64} : tensor<1x2x2xf32>
  %4 = mpc.matmul %3, %v : (tensor<1x2x2xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  return %4 : tensor<1x2x3xf32>
}
func.func @low_where_a_row_may_be_empty(%q: tensor<1x2x8xf32>, %k: tensor<1x2x8xf32>, %v: tensor<1x2x3xf32>, %mask: tensor<1x2x2xi1>) -> tensor<1x2x3xf32> {
  %low = arith.constant dense<-1.0e+9> : tensor<1x2x2xf32>
  %0 = mpc.matmul %q, %k {transpose_rhs} : (tensor<1x2x8xf32>, tensor<1x2x8xf32>) -> tensor<1x2x2xf32>
  %1 = arith.select %mask, %0, %low : tensor<1x2x2xi1>, tensor<1x2x2xf32>
  %2 = mpc.softmax %1 {axis = 2 : i64} : tensor<1x2x2xf32>
  %3 = mpc.matmul %2, %v : (tensor<1x2x2xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  return %3 : tensor<1x2x3xf32>
}

// A factor that is no number stays where it is.
// CHECK-LABEL: func.func @no_number
// CHECK-NOT: mpc.attention
// CHECK: return
func.func @no_number(%q: tensor<1x2x8xf32>, %k: tensor<1x2x8xf32>, %v: tensor<1x2x3xf32>) -> tensor<1x2x3xf32> {
  %infinite = arith.constant dense<0x7F800000> : tensor<1x2x2xf32>
  %0 = mpc.matmul %q, %k {transpose_rhs} : (tensor<1x2x8xf32>, tensor<1x2x8xf32>) -> tensor<1x2x2xf32>
  %1 = arith.mulf %0, %infinite : tensor<1x2x2xf32>
  %2 = mpc.softmax %1 {axis = 2 : i64} : tensor<1x2x2xf32>
  %3 = mpc.matmul %2, %v : (tensor<1x2x2xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  return %3 : tensor<1x2x3xf32>
}

// What stays: a bias that is trained; weights that somebody else reads; a factor behind the bias; a softmax over the queries.
// CHECK-LABEL: func.func @trained_bias
// CHECK-NOT: mpc.attention
// CHECK-LABEL: func.func @weights_are_read
// CHECK-NOT: mpc.attention
// CHECK-LABEL: func.func @factor_of_all
// CHECK-NOT: mpc.attention
// CHECK-LABEL: func.func @over_queries
// CHECK-NOT: mpc.attention
func.func @trained_bias(%q: tensor<1x2x8xf32>, %k: tensor<1x2x8xf32>, %v: tensor<1x2x3xf32>, %bias: tensor<2x2xf32> {mpc.role = "parameter", mpc.name = "positions"}) -> tensor<1x2x3xf32> {
  %0 = mpc.matmul %q, %k {transpose_rhs} : (tensor<1x2x8xf32>, tensor<1x2x8xf32>) -> tensor<1x2x2xf32>
  %1 = mpc.broadcast %bias {dimensions = array<i64: 1, 2>} : tensor<2x2xf32> -> tensor<1x2x2xf32>
  %2 = arith.addf %0, %1 : tensor<1x2x2xf32>
  %3 = mpc.softmax %2 {axis = 2 : i64} : tensor<1x2x2xf32>
  %4 = mpc.matmul %3, %v : (tensor<1x2x2xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  return %4 : tensor<1x2x3xf32>
}
func.func @weights_are_read(%q: tensor<1x2x8xf32>, %k: tensor<1x2x8xf32>, %v: tensor<1x2x3xf32>) -> (tensor<1x2x3xf32>, tensor<1x2x2xf32>) {
  %0 = mpc.matmul %q, %k {transpose_rhs} : (tensor<1x2x8xf32>, tensor<1x2x8xf32>) -> tensor<1x2x2xf32>
  %1 = mpc.softmax %0 {axis = 2 : i64} : tensor<1x2x2xf32>
  %2 = mpc.matmul %1, %v : (tensor<1x2x2xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  return %2, %1 : tensor<1x2x3xf32>, tensor<1x2x2xf32>
}
func.func @factor_of_all(%q: tensor<1x2x8xf32>, %k: tensor<1x2x8xf32>, %v: tensor<1x2x3xf32>, %bias: tensor<1x2x2xf32>) -> tensor<1x2x3xf32> {
  %half = arith.constant dense<0.5> : tensor<1x2x2xf32>
  %0 = mpc.matmul %q, %k {transpose_rhs} : (tensor<1x2x8xf32>, tensor<1x2x8xf32>) -> tensor<1x2x2xf32>
  %1 = arith.addf %0, %bias : tensor<1x2x2xf32>
  %2 = arith.mulf %1, %half : tensor<1x2x2xf32>
  %3 = mpc.softmax %2 {axis = 2 : i64} : tensor<1x2x2xf32>
  %4 = mpc.matmul %3, %v : (tensor<1x2x2xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  return %4 : tensor<1x2x3xf32>
}
func.func @over_queries(%q: tensor<1x2x8xf32>, %k: tensor<1x2x8xf32>, %v: tensor<1x2x3xf32>) -> tensor<1x2x3xf32> {
  %0 = mpc.matmul %q, %k {transpose_rhs} : (tensor<1x2x8xf32>, tensor<1x2x8xf32>) -> tensor<1x2x2xf32>
  %1 = mpc.softmax %0 {axis = 1 : i64} : tensor<1x2x2xf32>
  %2 = mpc.matmul %1, %v : (tensor<1x2x2xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  return %2 : tensor<1x2x3xf32>
}

// Dropout of the weights, as BERT is exported in training, in half precision. The mask's numbers are those of [B, H, M, N], whose order the operation has, too.
// CHECK-LABEL: func.func @dropout
// CHECK-SAME: %[[STATE:[a-z0-9]*]]: tensor<2xi64>
// CHECK: %[[STREAM:.*]] = arith.constant dense<[5, 9]> : tensor<2xi64>
// CHECK: mpc.attention %{{.*}} dropout %[[STATE]], %[[STREAM]] {bias_dimensions = array<i64>, ratio = 1.000000e-01 : f64, scale = 1.000000e+00 : f32}
// CHECK-NOT: mpc.dropout
func.func @dropout(%q: tensor<2x4x2x8xf16>, %k: tensor<2x6x2x8xf16>, %v: tensor<2x6x2x8xf16>, %state: tensor<2xi64>) -> tensor<2x2x4x8xf16> {
  %0 = mpc.transpose %q {permutation = array<i64: 0, 2, 1, 3>} : tensor<2x4x2x8xf16> -> tensor<2x2x4x8xf16>
  %1 = mpc.transpose %k {permutation = array<i64: 0, 2, 3, 1>} : tensor<2x6x2x8xf16> -> tensor<2x2x8x6xf16>
  %2 = mpc.transpose %v {permutation = array<i64: 0, 2, 1, 3>} : tensor<2x6x2x8xf16> -> tensor<2x2x6x8xf16>
  %3 = mpc.matmul %0, %1 : (tensor<2x2x4x8xf16>, tensor<2x2x8x6xf16>) -> tensor<2x2x4x6xf16>
  %4 = arith.extf %3 : tensor<2x2x4x6xf16> to tensor<2x2x4x6xf32>
  %5 = mpc.softmax %4 {axis = 3 : i64} : tensor<2x2x4x6xf32>
  %6 = arith.truncf %5 : tensor<2x2x4x6xf32> to tensor<2x2x4x6xf16>
  %7 = mpc.dropout %6, %state {ratio = 0.1, operator_id = 5 : i64, seed = 9 : i64} : tensor<2x2x4x6xf16>, tensor<2xi64> -> tensor<2x2x4x6xf16>
  %8 = mpc.matmul %7, %2 : (tensor<2x2x4x6xf16>, tensor<2x2x6x8xf16>) -> tensor<2x2x4x8xf16>
  return %8 : tensor<2x2x4x8xf16>
}

// One head; the dropout in f32 and rounded behind.
// CHECK-LABEL: func.func @dropout_of_one_head
// CHECK: mpc.attention %{{.*}} dropout %arg3, %{{.*}} -> (tensor<2x4x1x3xf16>
// CHECK-NOT: mpc.dropout
func.func @dropout_of_one_head(%q: tensor<2x4x8xf16>, %k: tensor<2x5x8xf16>, %v: tensor<2x5x3xf16>, %state: tensor<2xi64>) -> tensor<2x4x3xf16> {
  %0 = mpc.matmul %q, %k {transpose_rhs} : (tensor<2x4x8xf16>, tensor<2x5x8xf16>) -> tensor<2x4x5xf16>
  %1 = arith.extf %0 : tensor<2x4x5xf16> to tensor<2x4x5xf32>
  %2 = mpc.softmax %1 {axis = 2 : i64} : tensor<2x4x5xf32>
  %3 = mpc.dropout %2, %state {ratio = 0.5, operator_id = 0 : i64, seed = 0 : i64} : tensor<2x4x5xf32>, tensor<2xi64> -> tensor<2x4x5xf32>
  %4 = arith.truncf %3 : tensor<2x4x5xf32> to tensor<2x4x5xf16>
  %5 = mpc.matmul %4, %v : (tensor<2x4x5xf16>, tensor<2x5x3xf16>) -> tensor<2x4x3xf16>
  return %5 : tensor<2x4x3xf16>
}

// What stays: dropout that keeps nothing, that somebody else reads, of the scores, of weights that somebody else reads.
// CHECK-LABEL: func.func @nothing_is_kept
// CHECK-NOT: mpc.attention
// CHECK-LABEL: func.func @dropout_is_read
// CHECK-NOT: mpc.attention
// CHECK-LABEL: func.func @dropout_of_scores
// CHECK-NOT: mpc.attention
// CHECK-LABEL: func.func @dropped_weights_are_read
// CHECK-NOT: mpc.attention
// CHECK: return
func.func @nothing_is_kept(%q: tensor<1x2x8xf32>, %k: tensor<1x2x8xf32>, %v: tensor<1x2x3xf32>, %state: tensor<2xi64>) -> tensor<1x2x3xf32> {
  %0 = mpc.matmul %q, %k {transpose_rhs} : (tensor<1x2x8xf32>, tensor<1x2x8xf32>) -> tensor<1x2x2xf32>
  %1 = mpc.softmax %0 {axis = 2 : i64} : tensor<1x2x2xf32>
  %2 = mpc.dropout %1, %state {ratio = 1.0, operator_id = 0 : i64, seed = 0 : i64} : tensor<1x2x2xf32>, tensor<2xi64> -> tensor<1x2x2xf32>
  %3 = mpc.matmul %2, %v : (tensor<1x2x2xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  return %3 : tensor<1x2x3xf32>
}
func.func @dropout_is_read(%q: tensor<1x2x8xf32>, %k: tensor<1x2x8xf32>, %v: tensor<1x2x3xf32>, %state: tensor<2xi64>) -> (tensor<1x2x3xf32>, tensor<1x2x2xf32>) {
  %0 = mpc.matmul %q, %k {transpose_rhs} : (tensor<1x2x8xf32>, tensor<1x2x8xf32>) -> tensor<1x2x2xf32>
  %1 = mpc.softmax %0 {axis = 2 : i64} : tensor<1x2x2xf32>
  %2 = mpc.dropout %1, %state {ratio = 0.5, operator_id = 0 : i64, seed = 0 : i64} : tensor<1x2x2xf32>, tensor<2xi64> -> tensor<1x2x2xf32>
  %3 = mpc.matmul %2, %v : (tensor<1x2x2xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  return %3, %2 : tensor<1x2x3xf32>, tensor<1x2x2xf32>
}
func.func @dropout_of_scores(%q: tensor<1x2x8xf32>, %k: tensor<1x2x8xf32>, %v: tensor<1x2x3xf32>, %state: tensor<2xi64>) -> tensor<1x2x3xf32> {
  %0 = mpc.matmul %q, %k {transpose_rhs} : (tensor<1x2x8xf32>, tensor<1x2x8xf32>) -> tensor<1x2x2xf32>
  %1 = mpc.dropout %0, %state {ratio = 0.5, operator_id = 0 : i64, seed = 0 : i64} : tensor<1x2x2xf32>, tensor<2xi64> -> tensor<1x2x2xf32>
  %2 = mpc.softmax %1 {axis = 2 : i64} : tensor<1x2x2xf32>
  %3 = mpc.matmul %2, %v : (tensor<1x2x2xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  return %3 : tensor<1x2x3xf32>
}
func.func @dropped_weights_are_read(%q: tensor<1x2x8xf32>, %k: tensor<1x2x8xf32>, %v: tensor<1x2x3xf32>, %state: tensor<2xi64>) -> (tensor<1x2x3xf32>, tensor<1x2x2xf32>) {
  %0 = mpc.matmul %q, %k {transpose_rhs} : (tensor<1x2x8xf32>, tensor<1x2x8xf32>) -> tensor<1x2x2xf32>
  %1 = mpc.softmax %0 {axis = 2 : i64} : tensor<1x2x2xf32>
  %2 = mpc.dropout %1, %state {ratio = 0.5, operator_id = 0 : i64, seed = 0 : i64} : tensor<1x2x2xf32>, tensor<2xi64> -> tensor<1x2x2xf32>
  %3 = mpc.matmul %2, %v : (tensor<1x2x2xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  return %3, %1 : tensor<1x2x3xf32>, tensor<1x2x2xf32>
}

// PyTorch's softmax of rows that a mask may leave nothing of, with dropout behind.
// CHECK-LABEL: func.func @safe
// CHECK-NOT: arith.cmpf
// CHECK: mpc.attention %{{.*}} bias %{{.*}} dropout %{{.*}} {bias_dimensions = array<i64: 0, 3>, ratio = 1.000000e-01 : f64, safe, scale = 1.000000e+00 : f32}
// CHECK-LABEL: func.func @safe_in_f32
// CHECK-NOT: arith.cmpf
// CHECK: mpc.attention {{.*}}safe
func.func @safe(%q: tensor<2x4x8xf16>, %k: tensor<2x5x8xf16>, %v: tensor<2x5x3xf16>, %mask: tensor<2x5xf32>, %state: tensor<2xi64>) -> tensor<2x4x3xf16> {
  %zero = arith.constant dense<0.0> : tensor<2x4x5xf16>
  %0 = mpc.matmul %q, %k {transpose_rhs} : (tensor<2x4x8xf16>, tensor<2x5x8xf16>) -> tensor<2x4x5xf16>
  %1 = arith.extf %0 : tensor<2x4x5xf16> to tensor<2x4x5xf32>
  %2 = mpc.broadcast %mask {dimensions = array<i64: 0, 2>} : tensor<2x5xf32> -> tensor<2x4x5xf32>
  %3 = arith.addf %1, %2 : tensor<2x4x5xf32>
  %4 = arith.truncf %3 : tensor<2x4x5xf32> to tensor<2x4x5xf16>
  %5 = mpc.softmax %4 {axis = 2 : i64, safe} : tensor<2x4x5xf16>
  %6 = arith.extf %5 : tensor<2x4x5xf16> to tensor<2x4x5xf32>
  %7 = arith.cmpf uno, %6, %6 : tensor<2x4x5xf32>
  %8 = arith.select %7, %zero, %5 : tensor<2x4x5xi1>, tensor<2x4x5xf16>
  %9 = mpc.dropout %8, %state {ratio = 0.1, operator_id = 5 : i64, seed = 9 : i64} : tensor<2x4x5xf16>, tensor<2xi64> -> tensor<2x4x5xf16>
  %10 = mpc.matmul %9, %v : (tensor<2x4x5xf16>, tensor<2x5x3xf16>) -> tensor<2x4x3xf16>
  return %10 : tensor<2x4x3xf16>
}
func.func @safe_in_f32(%q: tensor<2x4x8xf16>, %k: tensor<2x5x8xf16>, %v: tensor<2x5x3xf16>) -> tensor<2x4x3xf16> {
  %zero = arith.constant dense<0.0> : tensor<2x4x5xf32>
  %0 = mpc.matmul %q, %k {transpose_rhs} : (tensor<2x4x8xf16>, tensor<2x5x8xf16>) -> tensor<2x4x5xf16>
  %1 = mpc.softmax %0 {axis = 2 : i64, safe} : tensor<2x4x5xf16>
  %2 = arith.extf %1 : tensor<2x4x5xf16> to tensor<2x4x5xf32>
  %3 = arith.extf %1 : tensor<2x4x5xf16> to tensor<2x4x5xf32>
  %4 = arith.cmpf uno, %2, %2 : tensor<2x4x5xf32>
  %5 = arith.select %4, %zero, %3 : tensor<2x4x5xi1>, tensor<2x4x5xf32>
  %6 = arith.truncf %5 : tensor<2x4x5xf32> to tensor<2x4x5xf16>
  %7 = mpc.matmul %6, %v : (tensor<2x4x5xf16>, tensor<2x5x3xf16>) -> tensor<2x4x3xf16>
  return %7 : tensor<2x4x3xf16>
}

// What stays: a softmax that is safe, and NaN not replaced; weights that somebody else reads before the choice; a choice of another number; one that is not
// of these weights.
// CHECK-LABEL: func.func @no_choice
// CHECK-NOT: mpc.attention
// CHECK-LABEL: func.func @safe_is_read
// CHECK-NOT: mpc.attention
// CHECK-LABEL: func.func @other_number
// CHECK-NOT: mpc.attention
// CHECK-LABEL: func.func @other_test
// CHECK-NOT: mpc.attention
// CHECK: return
func.func @no_choice(%q: tensor<1x2x8xf32>, %k: tensor<1x2x8xf32>, %v: tensor<1x2x3xf32>) -> tensor<1x2x3xf32> {
  %0 = mpc.matmul %q, %k {transpose_rhs} : (tensor<1x2x8xf32>, tensor<1x2x8xf32>) -> tensor<1x2x2xf32>
  %1 = mpc.softmax %0 {axis = 2 : i64, safe} : tensor<1x2x2xf32>
  %2 = mpc.matmul %1, %v : (tensor<1x2x2xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  return %2 : tensor<1x2x3xf32>
}
func.func @safe_is_read(%q: tensor<1x2x8xf32>, %k: tensor<1x2x8xf32>, %v: tensor<1x2x3xf32>) -> (tensor<1x2x3xf32>, tensor<1x2x2xf32>) {
  %zero = arith.constant dense<0.0> : tensor<1x2x2xf32>
  %0 = mpc.matmul %q, %k {transpose_rhs} : (tensor<1x2x8xf32>, tensor<1x2x8xf32>) -> tensor<1x2x2xf32>
  %1 = mpc.softmax %0 {axis = 2 : i64, safe} : tensor<1x2x2xf32>
  %2 = arith.cmpf uno, %1, %1 : tensor<1x2x2xf32>
  %3 = arith.select %2, %zero, %1 : tensor<1x2x2xi1>, tensor<1x2x2xf32>
  %4 = mpc.matmul %3, %v : (tensor<1x2x2xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  return %4, %1 : tensor<1x2x3xf32>, tensor<1x2x2xf32>
}
func.func @other_number(%q: tensor<1x2x8xf32>, %k: tensor<1x2x8xf32>, %v: tensor<1x2x3xf32>) -> tensor<1x2x3xf32> {
  %one = arith.constant dense<1.0> : tensor<1x2x2xf32>
  %0 = mpc.matmul %q, %k {transpose_rhs} : (tensor<1x2x8xf32>, tensor<1x2x8xf32>) -> tensor<1x2x2xf32>
  %1 = mpc.softmax %0 {axis = 2 : i64, safe} : tensor<1x2x2xf32>
  %2 = arith.cmpf uno, %1, %1 : tensor<1x2x2xf32>
  %3 = arith.select %2, %one, %1 : tensor<1x2x2xi1>, tensor<1x2x2xf32>
  %4 = mpc.matmul %3, %v : (tensor<1x2x2xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  return %4 : tensor<1x2x3xf32>
}
func.func @other_test(%q: tensor<1x2x8xf32>, %k: tensor<1x2x8xf32>, %v: tensor<1x2x3xf32>, %other: tensor<1x2x2xf32>) -> tensor<1x2x3xf32> {
  %zero = arith.constant dense<0.0> : tensor<1x2x2xf32>
  %0 = mpc.matmul %q, %k {transpose_rhs} : (tensor<1x2x8xf32>, tensor<1x2x8xf32>) -> tensor<1x2x2xf32>
  %1 = mpc.softmax %0 {axis = 2 : i64, safe} : tensor<1x2x2xf32>
  %2 = arith.cmpf uno, %1, %other : tensor<1x2x2xf32>
  %3 = arith.select %2, %zero, %1 : tensor<1x2x2xi1>, tensor<1x2x2xf32>
  %4 = mpc.matmul %3, %v : (tensor<1x2x2xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  return %4 : tensor<1x2x3xf32>
}

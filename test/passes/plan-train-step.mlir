// RUN: mpc-opt %s --insert-loss-scaling --insert-optimizer --expand-composites --place-roundings --fuse --plan | FileCheck %s
// RUN: mpc-opt %s --insert-loss-scaling --insert-optimizer=optimizer=sgd --expand-composites --place-roundings --fuse --plan | FileCheck %s

// A train step copies nothing: masters, moments, half copies, scale and counters are written in place, in one kernel per
// parameter that reads every tensor once.
// CHECK-LABEL: func.func @gradients
// CHECK-NOT:     mpc.launch @copy
// CHECK-LABEL: func.func @apply(
// CHECK-NOT:     mpc.launch @copy
// CHECK:         mpc.launch @{{.*}} {mpc.buffers = [{{(#mpc.buffer<states, [0-9]+>(, )?)+}}]} : {{.*}}tensor<98x4096xf32>
// CHECK-NOT:     mpc.launch @copy
// CHECK-LABEL: func.func @apply_accumulated
// CHECK-NOT:     mpc.launch @copy
// CHECK-LABEL: func.func @accumulate
// CHECK-NOT:     mpc.launch @copy
// CHECK-LABEL: func.func @refresh
// CHECK-NOT:     mpc.launch @copy
func.func @gradients(%w: tensor<128x3136xf32> {mpc.role = "parameter", mpc.name = "w", mpc.weights = #mpc.weights<"m.onnx", 0, 1605632, f32>},
    %x: tensor<64x3136xf16> {mpc.role = "input", mpc.name = "x"}, %seed: tensor<f32> {mpc.role = "seed", mpc.name = "loss_scale"})
    -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}, tensor<f32> {mpc.role = "count", mpc.name = "count"},
        tensor<128x3136xf32> {mpc.role = "gradient", mpc.name = "w"}) {
  %h = arith.truncf %w : tensor<128x3136xf32> to tensor<128x3136xf16>
  %y = mpc.matmul %x, %h {transpose_rhs} : (tensor<64x3136xf16>, tensor<128x3136xf16>) -> tensor<64x128xf16>
  %e = arith.extf %y : tensor<64x128xf16> to tensor<64x128xf32>
  %l = mpc.reduce sum %e {axes = array<i64: 0, 1>} : tensor<64x128xf32> -> tensor<f32>
  %c = arith.constant dense<64.0> : tensor<f32>
  %s = mpc.broadcast %seed {dimensions = array<i64>} : tensor<f32> -> tensor<64x128xf32>
  %d = arith.truncf %s : tensor<64x128xf32> to tensor<64x128xf16>
  %g = mpc.matmul %d, %x {transpose_lhs} : (tensor<64x128xf16>, tensor<64x3136xf16>) -> tensor<128x3136xf32>
  return %l, %c, %g : tensor<f32>, tensor<f32>, tensor<128x3136xf32>
}

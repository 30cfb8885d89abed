// RUN: mpc-opt %s --insert-loss-scaling --insert-optimizer --expand-composites --canonicalize --cse --prepare-groups --canonicalize --cse --place-roundings --fuse --plan=target=cuda | FileCheck %s
// RUN: mpc-opt %s --insert-loss-scaling --insert-optimizer --expand-composites --place-roundings --fuse --plan | FileCheck %s --check-prefix=CPU

// For a GPU, equal work on two parameters of different shapes is one group. Their square sums are written next to each other, where the table of them lies, which
// needs no launch; no kernel has a scalar of each. On the CPU every launch is its own.
// CPU-NOT: mpc.group
// CPU-NOT: mpc.placed
// CHECK-LABEL: func.func @apply(
// CHECK:         mpc.launch @[[SUM:mul_sum_[0-9]+]]({{.*}}) {mpc.buffers = [#mpc.buffer<outputs, [[#AT:]]>], mpc.group = 0 : i64, mpc.scratch = #mpc.buffer<arena, {{.*}} (tensor<401408xf32>) -> tensor<f64>
// CHECK:         mpc.launch @mul_sum_{{[0-9]+}}({{.*}}) {mpc.buffers = [#mpc.buffer<outputs, [[#AT+8]]>], mpc.group = 0 : i64, mpc.scratch = #mpc.buffer<arena, {{.*}} (tensor<33xf32>) -> tensor<f64>
// CHECK:         mpc.launch @concat_{{[0-9]+}}({{.*}}) {mpc.buffers = [#mpc.buffer<outputs, [[#AT]]>], mpc.placed}
// CHECK:         %[[ALL:.*]]:{{[0-9]+}} = mpc.launch
// CHECK-SAME:    tensor<2xf64>
// CHECK:         mpc.launch @{{[a-z_]*}}select_{{[0-9]+}}({{.*}}mpc.group = 1 : i64{{.*}}tensor<98x4096xf32>
// CHECK-NEXT:    mpc.launch @{{[a-z_]*}}select_{{[0-9]+}}({{.*}}mpc.group = 1 : i64{{.*}}tensor<33xf32>
// CHECK-LABEL: func.func @apply_accumulated
// CHECK-LABEL: func.func @accumulate
// CHECK:         mpc.group = 0
// CHECK:         mpc.group = 0
func.func @gradients(%w: tensor<128x3136xf32> {mpc.role = "parameter", mpc.name = "w", mpc.weights = #mpc.weights<"m.onnx", 0, 1605632, f32>},
    %b: tensor<33xf32> {mpc.role = "parameter", mpc.name = "b", mpc.weights = #mpc.weights<"m.onnx", 1605632, 132, f32>},
    %seed: tensor<f32> {mpc.role = "seed", mpc.name = "loss_scale"})
    -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}, tensor<f32> {mpc.role = "count", mpc.name = "count"},
        tensor<128x3136xf32> {mpc.role = "gradient", mpc.name = "w"}, tensor<33xf32> {mpc.role = "gradient", mpc.name = "b"}) {
  %s = mpc.broadcast %seed {dimensions = array<i64>} : tensor<f32> -> tensor<128x3136xf32>
  %g = arith.mulf %w, %s : tensor<128x3136xf32>
  %t = mpc.broadcast %seed {dimensions = array<i64>} : tensor<f32> -> tensor<33xf32>
  %h = arith.mulf %b, %t : tensor<33xf32>
  %l = mpc.reduce sum %b {axes = array<i64: 0>} : tensor<33xf32> -> tensor<f32>
  %c = arith.constant dense<64.0> : tensor<f32>
  return %l, %c, %g, %h : tensor<f32>, tensor<f32>, tensor<128x3136xf32>, tensor<33xf32>
}

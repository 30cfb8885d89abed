// RUN: mpc-opt %s --plan=target=cuda | FileCheck %s

// Of two branches of a network, the second one's product may lie where the first one's did: equal small kernels in both do not run together, for the first
// one's last kernel, which reads its product, would have to wait for the second one.
// CHECK:       module attributes {mpc.region_bytes = {{{.*}}arena = 1052672 : i64
// CHECK-LABEL: func.func @predict(
// CHECK-NOT:     mpc.group
// CHECK-LABEL: func.func @eval_step(
// CHECK-COUNT-2: mpc.launch @small({{.*}}mpc.group = 0
// CHECK-LABEL: func.func @forward(
// CHECK-COUNT-2: mpc.launch @small({{.*}}mpc.group = 0
// CHECK:         mpc.matmul

func.func private @small(%x: tensor<512xf32>) -> tensor<512xf32> attributes {mpc.kernel = #mpc.kernel<map, domain = [512], split = 0, aliases = [-1]>} {
  %0 = arith.mulf %x, %x : tensor<512xf32>
  return %0 : tensor<512xf32>
}
func.func private @sums(%x: tensor<512x512xf32>) -> tensor<512xf32> attributes {mpc.kernel = #mpc.kernel<row, domain = [512, 512], split = 1, aliases = [-1]>} {
  %0 = mpc.reduce sum %x {axes = array<i64: 1>} : tensor<512x512xf32> -> tensor<512xf32>
  return %0 : tensor<512xf32>
}
func.func private @scaled(%x: tensor<512x512xf32>, %s: tensor<512xf32>) -> tensor<512xf32>
    attributes {mpc.kernel = #mpc.kernel<row, domain = [512, 512], split = 1, aliases = [-1]>} {
  %b = mpc.broadcast %s {dimensions = array<i64: 1>} : tensor<512xf32> -> tensor<512x512xf32>
  %m = arith.mulf %x, %b : tensor<512x512xf32>
  %0 = mpc.reduce sum %m {axes = array<i64: 1>} : tensor<512x512xf32> -> tensor<512xf32>
  return %0 : tensor<512xf32>
}
func.func @predict(%x: tensor<512x512xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<512x512xf32> {mpc.role = "constant", mpc.name = "w"})
    -> (tensor<512xf32> {mpc.role = "output", mpc.name = "y"}, tensor<512xf32> {mpc.role = "output", mpc.name = "z"}) {
  %a = mpc.matmul %x, %w : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %s = mpc.launch @sums(%a) : (tensor<512x512xf32>) -> tensor<512xf32>
  %g = mpc.launch @small(%s) : (tensor<512xf32>) -> tensor<512xf32>
  %y = mpc.launch @scaled(%a, %g) : (tensor<512x512xf32>, tensor<512xf32>) -> tensor<512xf32>
  %b = mpc.matmul %w, %x : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %t = mpc.launch @sums(%b) : (tensor<512x512xf32>) -> tensor<512xf32>
  %h = mpc.launch @small(%t) : (tensor<512xf32>) -> tensor<512xf32>
  %z = mpc.launch @scaled(%b, %h) : (tensor<512x512xf32>, tensor<512xf32>) -> tensor<512xf32>
  return %y, %z : tensor<512xf32>, tensor<512xf32>
}

// Where only small values wait, they run together (@eval_step); and where nothing has to wait, for all that they read is there from the start (@forward).
func.func @eval_step(%x: tensor<512x512xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<512x512xf32> {mpc.role = "constant", mpc.name = "w"})
    -> (tensor<512xf32> {mpc.role = "output", mpc.name = "y"}, tensor<512xf32> {mpc.role = "output", mpc.name = "z"}) {
  %a = mpc.matmul %x, %w : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %s = mpc.launch @sums(%a) : (tensor<512x512xf32>) -> tensor<512xf32>
  %g = mpc.launch @small(%s) : (tensor<512xf32>) -> tensor<512xf32>
  %y = mpc.launch @scaled(%x, %g) : (tensor<512x512xf32>, tensor<512xf32>) -> tensor<512xf32>
  %b = mpc.matmul %w, %x : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %t = mpc.launch @sums(%b) : (tensor<512x512xf32>) -> tensor<512xf32>
  %h = mpc.launch @small(%t) : (tensor<512xf32>) -> tensor<512xf32>
  %z = mpc.launch @scaled(%w, %h) : (tensor<512x512xf32>, tensor<512xf32>) -> tensor<512xf32>
  return %y, %z : tensor<512xf32>, tensor<512xf32>
}

func.func @forward(%x: tensor<512x512xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<512x512xf32> {mpc.role = "constant", mpc.name = "w"},
    %s: tensor<512xf32> {mpc.role = "constant", mpc.name = "s"}, %t: tensor<512xf32> {mpc.role = "constant", mpc.name = "t"})
    -> (tensor<512xf32> {mpc.role = "output", mpc.name = "y"}, tensor<512xf32> {mpc.role = "output", mpc.name = "z"}) {
  %a = mpc.matmul %x, %w : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %g = mpc.launch @small(%s) : (tensor<512xf32>) -> tensor<512xf32>
  %y = mpc.launch @scaled(%a, %g) : (tensor<512x512xf32>, tensor<512xf32>) -> tensor<512xf32>
  %b = mpc.matmul %w, %x : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %h = mpc.launch @small(%t) : (tensor<512xf32>) -> tensor<512xf32>
  %z = mpc.launch @scaled(%b, %h) : (tensor<512x512xf32>, tensor<512xf32>) -> tensor<512xf32>
  return %y, %z : tensor<512xf32>, tensor<512xf32>
}

// RUN: mpc-opt %s --fuse --plan | FileCheck %s

// The gradient that @gradients returns is what @apply reads: one role and name, one buffer.
// CHECK: module attributes {mpc.region_bytes = {{.*}}gradients = 1024 : i64
// CHECK-LABEL: func.func @gradients
// CHECK:         mpc.launch {{.*}} {mpc.buffers = [#mpc.buffer<gradients, 0>]
func.func @gradients(%w: tensor<256xf32> {mpc.role = "parameter", mpc.name = "w"}, %x: tensor<f32> {mpc.role = "input", mpc.name = "x"})
    -> (tensor<256xf32> {mpc.role = "gradient", mpc.name = "w"}) {
  %b = mpc.broadcast %x {dimensions = array<i64>} : tensor<f32> -> tensor<256xf32>
  %g = arith.mulf %w, %b : tensor<256xf32>
  return %g : tensor<256xf32>
}

// The new parameter is written over the old one.
// CHECK-LABEL: func.func @apply
// CHECK-SAME:    mpc.buffer = #mpc.buffer<states, 0>, mpc.name = "w"
// CHECK-SAME:    mpc.buffer = #mpc.buffer<gradients, 0>
// CHECK:         mpc.launch {{.*}} {mpc.buffers = [#mpc.buffer<states, 0>]}
// CHECK-NOT:     mpc.launch
func.func @apply(%w: tensor<256xf32> {mpc.role = "parameter", mpc.name = "w"}, %g: tensor<256xf32> {mpc.role = "gradient", mpc.name = "w"})
    -> (tensor<256xf32> {mpc.role = "parameter", mpc.name = "w", mpc.tied = 0 : i64}) {
  %n = arith.subf %w, %g : tensor<256xf32>
  return %n : tensor<256xf32>
}

// A small kernel may read its arguments before it writes over both: they are exchanged without another buffer.
// CHECK-LABEL: func.func @exchange
// CHECK:         mpc.launch {{.*}} {mpc.buffers = [#mpc.buffer<inputs, 64>, #mpc.buffer<inputs, 128>]}
// CHECK-NOT:     mpc.launch
func.func @exchange(%a: tensor<f32> {mpc.role = "input", mpc.name = "a"}, %b: tensor<f32> {mpc.role = "input", mpc.name = "b"})
    -> (tensor<f32> {mpc.role = "input", mpc.name = "a", mpc.tied = 0 : i64}, tensor<f32> {mpc.role = "input", mpc.name = "b", mpc.tied = 1 : i64}) {
  return %b, %a : tensor<f32>, tensor<f32>
}

// What is read elsewhere than where it is written cannot be overwritten: the result waits in the arena, and is copied.
// CHECK-LABEL: func.func @turned
// CHECK:         mpc.launch @transpose_{{.*}} {mpc.buffers = [#mpc.buffer<arena, 0>]}
// CHECK:         mpc.launch @copy{{.*}} {mpc.buffers = [#mpc.buffer<inputs, 192>]}
func.func @turned(%a: tensor<8x8xf32> {mpc.role = "input", mpc.name = "t"}) -> (tensor<8x8xf32> {mpc.role = "input", mpc.name = "t", mpc.tied = 0 : i64}) {
  %t = mpc.transpose %a {permutation = array<i64: 1, 0>} : tensor<8x8xf32> -> tensor<8x8xf32>
  return %t : tensor<8x8xf32>
}

// The counter is advanced before its old value is read for the last time in the text: the readers are moved in front.
// CHECK-LABEL: func.func @reordered
// CHECK:         mpc.launch @gather_
// CHECK:         mpc.launch @{{.*}} {mpc.buffers = [#mpc.buffer<states, 1024>]}
func.func @reordered(%k: tensor<i64> {mpc.role = "applied_steps", mpc.name = "k"}, %s: tensor<4096x4xf32> {mpc.role = "schedule", mpc.name = "s"})
    -> (tensor<i64> {mpc.role = "applied_steps", mpc.name = "k", mpc.tied = 0 : i64}, tensor<4xf32> {mpc.role = "output", mpc.name = "row"}) {
  %one = arith.constant dense<1> : tensor<i64>
  %n = arith.addi %k, %one : tensor<i64>
  %row = mpc.gather %s, %k {axis = 0 : i64} : tensor<4096x4xf32>, tensor<i64> -> tensor<4xf32>
  return %n, %row : tensor<i64>, tensor<4xf32>
}

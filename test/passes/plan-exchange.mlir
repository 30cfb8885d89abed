// RUN: mpc-opt %s --plan | FileCheck %s

// Arguments that are returned in each other's place are copied before they are overwritten: one value waits in the arena.
// CHECK-LABEL: func.func @swapped
// CHECK:         %[[OLD:.*]] = mpc.launch @copy{{.*}}(%arg0) {mpc.buffers = [#mpc.buffer<arena, 0>]}
// CHECK:         %[[A:.*]] = mpc.launch @copy{{.*}}(%arg1) {mpc.buffers = [#mpc.buffer<inputs, 0>]}
// CHECK:         %[[B:.*]] = mpc.launch @copy{{.*}}(%[[OLD]]) {mpc.buffers = [#mpc.buffer<inputs, 64>]}
// CHECK:         return %[[A]], %[[B]]
func.func @swapped(%a: tensor<4xf32> {mpc.role = "input", mpc.name = "a"}, %b: tensor<4xf32> {mpc.role = "input", mpc.name = "b"})
    -> (tensor<4xf32> {mpc.role = "input", mpc.name = "a", mpc.tied = 0 : i64}, tensor<4xf32> {mpc.role = "input", mpc.name = "b", mpc.tied = 1 : i64}) {
  return %b, %a : tensor<4xf32>, tensor<4xf32>
}

// The old value is returned beside another that is written over it.
// CHECK-LABEL: func.func @old_and_new
// CHECK:         %[[OLD:.*]] = mpc.launch @copy{{.*}}(%arg0) {mpc.buffers = [#mpc.buffer<outputs, 0>]}
// CHECK:         %[[NEW:.*]] = mpc.launch @copy{{.*}}(%arg1) {mpc.buffers = [#mpc.buffer<inputs, 128>]}
// CHECK:         return %[[NEW]], %[[OLD]]
func.func @old_and_new(%a: tensor<4xf32> {mpc.role = "input", mpc.name = "c"}, %n: tensor<4xf32> {mpc.role = "input", mpc.name = "d"})
    -> (tensor<4xf32> {mpc.role = "input", mpc.name = "c", mpc.tied = 0 : i64}, tensor<4xf32> {mpc.role = "output", mpc.name = "old"}) {
  return %n, %a : tensor<4xf32>, tensor<4xf32>
}

// A kernel that may write over its argument by itself does not where a later operation wants the argument as it was: the result waits in the arena.
// CHECK-LABEL: func.func @still_read
// CHECK:         %[[NEW:.*]] = mpc.launch @[[OWN:double.*]](%arg0) {mpc.buffers = [#mpc.buffer<arena, 0>]}
// CHECK:         mpc.matmul %arg0, %[[NEW]]
// CHECK:         mpc.launch @copy{{.*}}(%[[NEW]]) {mpc.buffers = [#mpc.buffer<states, 0>]}
// CHECK:       func.func private @[[OWN]]
// CHECK-SAME:    aliases = [-1]
func.func @still_read(%w: tensor<4x4xf32> {mpc.role = "parameter", mpc.name = "w"})
    -> (tensor<4x4xf32> {mpc.role = "parameter", mpc.name = "w", mpc.tied = 0 : i64}, tensor<4x4xf32> {mpc.role = "output", mpc.name = "o"}) {
  %0 = mpc.launch @double(%w) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = mpc.matmul %w, %0 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0, %1 : tensor<4x4xf32>, tensor<4x4xf32>
}
func.func private @double(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {mpc.kernel = #mpc.kernel<map, domain = [4, 4], split = 0, aliases = [0]>} {
  %0 = arith.addf %x, %x : tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

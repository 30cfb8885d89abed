// What can be trained but is hardly meant is told in a note; a loss that fits its output has none.
// RUN: mpc-opt %s --split-input-file --prepare-training --attach-loss | FileCheck %s --check-prefix=CE
// RUN: mpc-opt %s --split-input-file --prepare-training --attach-loss='loss=nll' | FileCheck %s --check-prefix=NLL
// RUN: mpc-opt %s --split-input-file --prepare-training --attach-loss='loss=bce-with-logits' | FileCheck %s --check-prefix=LOGITS
// RUN: mpc-opt %s --split-input-file --prepare-training --attach-loss='loss=bce' | FileCheck %s --check-prefix=BCE

// CE: mpc.notes = ["--loss=cross-entropy: output 'p' is a Softmax already, and the loss computes another of it; give the tensor before it with --loss-input"]
// NLL: mpc.notes = ["--loss=nll: output 'p' is a Softmax, and the loss reads logarithms of probabilities; give the tensor before it with --loss-input, and --loss=cross-entropy"]
// LOGITS-NOT: mpc.notes
// LOGITS: func.func @predict
// BCE-NOT: mpc.notes
module attributes {mpc.batch = 4 : i64} {
func.func @forward(%x: tensor<4x3xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<4x3xf32> {mpc.role = "parameter", mpc.name = "w"})
    -> (tensor<4x3xf32> {mpc.role = "output", mpc.name = "p"}) {
  %0 = arith.mulf %x, %w : tensor<4x3xf32>
  %1 = mpc.softmax %0 {axis = 1 : i64} : tensor<4x3xf32>
  return %1 : tensor<4x3xf32>
}
}

// -----

// CE: mpc.notes = ["--loss=cross-entropy: output 'q' has one class, so that the loss is 0 whatever the model computes; for one logit per sample there is --loss=bce-with-logits"]
// NLL: mpc.notes = ["--loss=nll: output 'q' has one class, so that no label but 0 exists; for one logit per sample there is --loss=bce-with-logits"]
// LOGITS: mpc.notes = ["--loss=bce-with-logits: output 'q' is a Sigmoid already, and the loss computes another of it; use --loss=bce, or give the tensor before it with --loss-input"]
module attributes {mpc.batch = 4 : i64} {
func.func @forward(%x: tensor<4x1xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<4x1xf32> {mpc.role = "parameter", mpc.name = "w"})
    -> (tensor<4x1xf32> {mpc.role = "output", mpc.name = "q"}) {
  %0 = arith.mulf %x, %w : tensor<4x1xf32>
  %1 = mpc.sigmoid %0 : tensor<4x1xf32>
  return %1 : tensor<4x1xf32>
}
}

// -----

// CE-NOT: mpc.notes
// NLL-NOT: mpc.notes
// LOGITS-NOT: mpc.notes
module attributes {mpc.batch = 4 : i64} {
func.func @forward(%x: tensor<4x3xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<4x3xf32> {mpc.role = "parameter", mpc.name = "w"})
    -> (tensor<4x3xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = arith.mulf %x, %w : tensor<4x3xf32>
  %1 = mpc.log_softmax %0 {axis = 1 : i64} : tensor<4x3xf32>
  return %1 : tensor<4x3xf32>
}
}

// -----

// A softmax along another axis than the classes' is no softmax of them.
// CE-NOT: mpc.notes
// NLL-NOT: mpc.notes
module attributes {mpc.batch = 4 : i64} {
func.func @forward(%x: tensor<4x3x5xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<4x3x5xf32> {mpc.role = "parameter", mpc.name = "w"})
    -> (tensor<4x3x5xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = arith.mulf %x, %w : tensor<4x3x5xf32>
  %1 = mpc.softmax %0 {axis = 1 : i64} : tensor<4x3x5xf32>
  return %1 : tensor<4x3x5xf32>
}
}

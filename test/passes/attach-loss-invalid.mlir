// RUN: not mpc-opt %s --prepare-training --attach-loss='loss=hinge' 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: not mpc-opt %s --prepare-training --attach-loss='loss-input=q' 2>&1 | FileCheck %s --check-prefix=OUTPUT
// RUN: not mpc-opt %s --prepare-training --attach-loss='loss-input=i' 2>&1 | FileCheck %s --check-prefix=INTEGER
// RUN: not mpc-opt %s --prepare-training --attach-loss='loss-input=v' 2>&1 | FileCheck %s --check-prefix=RANK
// RUN: not mpc-opt %s --prepare-training --attach-loss='class-axis=2' 2>&1 | FileCheck %s --check-prefix=AXIS
// RUN: not mpc-opt %s --prepare-training --attach-loss='loss=output' 2>&1 | FileCheck %s --check-prefix=SCALAR

// NAME: error: --loss=hinge: unknown; one of cross-entropy, nll, mse, l1, smooth-l1, bce, bce-with-logits, output, none
// OUTPUT: error: --loss-input=q: the model has no output or tensor of that name; floating-point outputs: y, v
// INTEGER: error: --loss-input=i: it is not floating-point, no loss can read it
// RANK: error: --loss=cross-entropy needs an output of shape samples × classes, but 'v' is 'tensor<4xf32>'; choose another with --loss-input, or another loss
// AXIS: error: --class-axis=2: output 'y' is 'tensor<4x3xf32>', so the axis is 1 to 1 (or negative from the end)
// SCALAR: error: --loss=output: output 'y' is 'tensor<4x3xf32>', a loss has one element
module attributes {mpc.batch = 4 : i64} {
func.func @forward(%x: tensor<4x3xf32> {mpc.role = "input", mpc.name = "x"}, %v: tensor<4xf32> {mpc.role = "input", mpc.name = "v"},
    %i: tensor<4xi64> {mpc.role = "input", mpc.name = "i"}) -> (tensor<4x3xf32> {mpc.role = "output", mpc.name = "y"},
    tensor<4xf32> {mpc.role = "output", mpc.name = "v"}, tensor<4xi64> {mpc.role = "output", mpc.name = "i"}) {
  return %x, %v, %i : tensor<4x3xf32>, tensor<4xf32>, tensor<4xi64>
}
}

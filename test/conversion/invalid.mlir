// RUN: mpc-opt %s --convert-onnx-to-mpc --split-input-file --verify-diagnostics

// All problems of a model are shown in one run: an unknown operator, a version without a handler, and an operand that cannot be broadcast. The node
// behind them, which only lacks their values, stays silent.
func.func @graph(%x: tensor<4x8xf32>, %y: tensor<3xf32>) -> tensor<4x8xf32> {
  // expected-error @+1 {{operator Det (node det, opset 22) has no handler; supported: see mpc --list-ops}}
  %0 = onnx.node "Det" 22 "det" (%x) {} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  // expected-error @+1 {{operator Add (node old, opset 6) has no handler for this version; supported: 7, 13, 14; convert the model to such an opset}}
  %1 = onnx.node "Add" 6 "old" (%x, %x) {} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  // expected-error @+1 {{misfit (Mul, opset 14): operand 1 of type 'tensor<3xf32>' cannot be broadcast with those before it}}
  %2 = onnx.node "Mul" 14 "misfit" (%x, %y) {} : (tensor<4x8xf32>, tensor<3xf32>) -> tensor<4x8xf32>
  %3 = onnx.node "Add" 14 "behind" (%0, %2) {} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %3 : tensor<4x8xf32>
}

// -----

func.func @graph(%x: tensor<4x8xf32>, %a: tensor<1xi64>) -> tensor<4x8xf32> {
  %none = onnx.none
  // expected-error @+1 {{sum (ReduceSum, opset 13): operand 1 must be known at compile time; make it an initializer or a constant, or simplify the model before export}}
  %0 = onnx.node "ReduceSum" 13 "sum" (%x, %a) {} : (tensor<4x8xf32>, tensor<1xi64>) -> tensor<*xf32>
  // expected-error @+1 {{add (Add, opset 14): operand 1 is left out, but needed}}
  %1 = onnx.node "Add" 14 "add" (%x, %none) {} : (tensor<4x8xf32>, none) -> tensor<4x8xf32>
  // expected-error @+1 {{cast (Cast, opset 13): casts to ONNX data type 8, which mpc does not have}}
  %2 = onnx.node "Cast" 13 "cast" (%x) {to = 8 : i64} : (tensor<4x8xf32>) -> tensor<*xf32>
  // expected-error @+1 {{mean (ReduceMean, opset 13): axis 2 is not one of 'tensor<4x8xf32>'}}
  %3 = onnx.node "ReduceMean" 13 "mean" (%x) {axes = array<i64: 2>} : (tensor<4x8xf32>) -> tensor<*xf32>
  return %1 : tensor<4x8xf32>
}

// -----

// What shape inference found must be what is built.
func.func @graph(%x: tensor<4x8xf32>) -> tensor<4x7xf32> {
  // expected-error @+1 {{relu (Relu, opset 14): result 0 would be 'tensor<4x8xf32>', but shape inference says 'tensor<4x7xf32>'}}
  %0 = onnx.node "Relu" 14 "relu" (%x) {} : (tensor<4x8xf32>) -> tensor<4x7xf32>
  return %0 : tensor<4x7xf32>
}

// -----

// expected-error @+1 {{input x is 'tensor<?x8xf32>': its sizes must be fixed; give them with --batch and --dim}}
func.func @graph(%x: tensor<?x8xf32> {mpc.name = "x", mpc.role = "input"}) -> tensor<?x8xf32> {
  %0 = onnx.node "Relu" 14 "relu" (%x) {} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

func.func @graph(%x: tensor<4xf32>, %c: tensor<i1>) -> tensor<4xf32> {
  // expected-error @+1 {{if (If, opset 16): the condition must be known at compile time; simplify the model before export}}
  %0 = onnx.node "If" 16 "if" (%c) {} {
    onnx.yield %x : tensor<4xf32>
  }, {
    onnx.yield %x : tensor<4xf32>
  } : (tensor<i1>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// A uint64 that an operator would take for a signed number is refused.
module attributes {mpc.unsigned = ["x"]} {
  func.func @graph(%x: tensor<4xi64> {mpc.role = "input", mpc.name = "x"}) -> tensor<1xi64> {
    // expected-error @+1 {{mean (ReduceMean, opset 18): operand 0 is uint64, which is not supported for this operator; Cast it to int64, which is the same below 2^63}}
    %0 = onnx.node "ReduceMean" 18 "mean" (%x) {mpc.unsigned = array<i64: 64>} : (tensor<4xi64>) -> tensor<1xi64>
    return %0 : tensor<1xi64>
  }
}

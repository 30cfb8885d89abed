// RUN: mpc-opt %s --split-input-file --convert-onnx-to-mpc --verify-diagnostics

// What the handlers of index maps, products, convolutions, pools and norms refuse, by node.

func.func @graph(%x: tensor<2x3xf32> {mpc.role = "input", mpc.name = "x"}) -> tensor<?xf32> {
  %s = arith.constant dense<[4, -1]> : tensor<2xi64>
  // expected-error @below {{view (Reshape, opset 14): the -1 of the shape has no value: 6 elements do not divide by 4}}
  %0 = onnx.node "Reshape" 14 "view" (%x, %s) {} : (tensor<2x3xf32>, tensor<2xi64>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

func.func @graph(%x: tensor<2x3xf32> {mpc.role = "input", mpc.name = "x"}, %s: tensor<2xi64> {mpc.role = "input", mpc.name = "s"}) -> tensor<?xf32> {
  // expected-error @below {{view (Reshape, opset 14): operand 1 must be known at compile time}}
  %0 = onnx.node "Reshape" 14 "view" (%x, %s) {} : (tensor<2x3xf32>, tensor<2xi64>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

func.func @graph(%x: tensor<2x3xf32> {mpc.role = "input", mpc.name = "x"}) -> tensor<?xf32> {
  // expected-error @below {{sq (Squeeze, opset 11): dimension 1 of size 3 cannot be squeezed}}
  %0 = onnx.node "Squeeze" 11 "sq" (%x) {axes = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

func.func @graph(%x: tensor<2x3xf32> {mpc.role = "input", mpc.name = "x"}) -> tensor<?xf32> {
  %p = arith.constant dense<[0, 3, 0, 0]> : tensor<4xi64>
  // expected-error @below {{pad (Pad, opset 13): reflects 3 elements on axis 1, which has only 3; a reflection may be at most 2 wide}}
  %0 = onnx.node "Pad" 13 "pad" (%x, %p) {mode = "reflect"} : (tensor<2x3xf32>, tensor<4xi64>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

func.func @graph(%x: tensor<7xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<?xf32>, tensor<?xf32>) {
  // expected-error @below {{sp (Split, opset 13): an axis of 7 elements does not split into 2 equal parts}}
  %0:2 = onnx.node "Split" 13 "sp" (%x) {} : (tensor<7xf32>) -> (tensor<?xf32>, tensor<?xf32>)
  return %0#0, %0#1 : tensor<?xf32>, tensor<?xf32>
}

// -----

func.func @graph(%x: tensor<2x3xf32> {mpc.role = "input", mpc.name = "x"}, %y: tensor<3x2xf32> {mpc.role = "input", mpc.name = "y"}) -> tensor<?xf32> {
  // expected-error @below {{cat (Concat, opset 13): joins 'tensor<2x3xf32>' and 'tensor<3x2xf32>' along axis 0}}
  %0 = onnx.node "Concat" 13 "cat" (%x, %y) {axis = 0 : i64} : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

func.func @graph(%x: tensor<2x3xf32> {mpc.role = "input", mpc.name = "x"}) -> tensor<?xf32> {
  %i = arith.constant dense<[0, 2]> : tensor<2xi64>
  // expected-error @below {{take (Gather, opset 13): index 2 is outside an axis of 2}}
  %0 = onnx.node "Gather" 13 "take" (%x, %i) {} : (tensor<2x3xf32>, tensor<2xi64>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

func.func @graph(%x: tensor<2x3xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<4x5xf32> {mpc.role = "parameter", mpc.name = "w"}) -> tensor<?xf32> {
  // expected-error @below {{mm (MatMul, opset 13): cannot multiply 'tensor<2x3xf32>' and 'tensor<4x5xf32>'}}
  %0 = onnx.node "MatMul" 13 "mm" (%x, %w) {} : (tensor<2x3xf32>, tensor<4x5xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

func.func @graph(%x: tensor<2x3xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<3x5xf32> {mpc.role = "parameter", mpc.name = "w"},
                 %c: tensor<4xf32> {mpc.role = "parameter", mpc.name = "c"}) -> tensor<?xf32> {
  // expected-error @below {{fc (Gemm, opset 13): C of type 'tensor<4xf32>' does not broadcast to 'tensor<2x5xf32>'}}
  %0 = onnx.node "Gemm" 13 "fc" (%x, %w, %c) {} : (tensor<2x3xf32>, tensor<3x5xf32>, tensor<4xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

func.func @graph(%x: tensor<1x4x8x8xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<6x4x3x3xf32> {mpc.role = "parameter", mpc.name = "w"}) -> tensor<?xf32> {
  // expected-error @below {{conv (Conv, opset 11): has 4 channels, a filter of type 'tensor<6x4x3x3xf32>' and group = 2, which do not fit}}
  %0 = onnx.node "Conv" 11 "conv" (%x, %w) {group = 2 : i64} : (tensor<1x4x8x8xf32>, tensor<6x4x3x3xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

func.func @graph(%x: tensor<1x4x2x8xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<6x4x3x3xf32> {mpc.role = "parameter", mpc.name = "w"}) -> tensor<?xf32> {
  // expected-error @below {{conv (Conv, opset 11): the kernel is larger than the padded input 'tensor<1x4x2x8xf32>'}}
  %0 = onnx.node "Conv" 11 "conv" (%x, %w) {} : (tensor<1x4x2x8xf32>, tensor<6x4x3x3xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

func.func @graph(%x: tensor<1x4x8x8xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<?xf32>, tensor<?xi64>) {
  // expected-error @below {{pool (MaxPool, opset 12): the output Indices is not supported; use the model without it}}
  %0:2 = onnx.node "MaxPool" 12 "pool" (%x) {kernel_shape = array<i64: 2, 2>} : (tensor<1x4x8x8xf32>) -> (tensor<?xf32>, tensor<?xi64>)
  return %0#0, %0#1 : tensor<?xf32>, tensor<?xi64>
}

// -----

func.func @graph(%x: tensor<2x3xf32> {mpc.role = "input", mpc.name = "x"}, %s: tensor<2xf32> {mpc.role = "parameter", mpc.name = "s"}) -> tensor<?xf32> {
  // expected-error @below {{ln (LayerNormalization, opset 17): operand 1 of type 'tensor<2xf32>' does not fit the normalized dimensions of 'tensor<2x3xf32>'}}
  %0 = onnx.node "LayerNormalization" 17 "ln" (%x, %s) {} : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

func.func @graph(%x: tensor<2x3xf32> {mpc.role = "input", mpc.name = "x"}) -> tensor<?xf32> {
  %axis = arith.constant dense<2> : tensor<i64>
  // expected-error @below {{sums (CumSum, opset 14): axis 2 is not one of 'tensor<2x3xf32>'}}
  %0 = onnx.node "CumSum" 14 "sums" (%x, %axis) {} : (tensor<2x3xf32>, tensor<i64>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

func.func @graph(%x: tensor<3x4xf32> {mpc.role = "input", mpc.name = "x"}, %u: tensor<1xf32> {mpc.role = "input", mpc.name = "u"}) -> (tensor<?xf32>, tensor<?x?xf32>) {
  %i = arith.constant dense<[[-4, 0]]> : tensor<1x2xi64>
  // expected-error @below {{g (GatherND, opset 13): index -4 is outside an axis of 3}}
  %0 = onnx.node "GatherND" 13 "g" (%x, %i) {} : (tensor<3x4xf32>, tensor<1x2xi64>) -> tensor<?xf32>
  // expected-error @below {{s (ScatterND, opset 18): index -4 is outside an axis of 3}}
  %1 = onnx.node "ScatterND" 18 "s" (%x, %i, %u) {} : (tensor<3x4xf32>, tensor<1x2xi64>, tensor<1xf32>) -> tensor<?x?xf32>
  return %0, %1 : tensor<?xf32>, tensor<?x?xf32>
}

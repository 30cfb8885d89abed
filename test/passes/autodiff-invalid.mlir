// RUN: mpc-opt %s --split-input-file --autodiff --verify-diagnostics

// Every operation without a gradient between a parameter and the loss is named, in one go.
func.func @forward(%w: tensor<4xf32> {mpc.role = "parameter", mpc.name = "w"})
    -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}) {
  // expected-error @+1 {{node 'root' (Cbrt): `math.cbrt` has no gradient, and it lies between parameter 'w' and the loss; freeze the parameters before it (--freeze), or take the operator out of the model}}
  %0 = math.cbrt %w {mpc.node = "root", mpc.op = "Cbrt"} : tensor<4xf32>
  // expected-error @+1 {{node 'at' (Atan2): `math.atan2` has no gradient}}
  %1 = math.atan2 %0, %w {mpc.node = "at", mpc.op = "Atan2"} : tensor<4xf32>
  %2 = mpc.reduce sum %1 {axes = array<i64: 0>} : tensor<4xf32> -> tensor<f32>
  return %2 : tensor<f32>
}

// -----

// expected-error @+1 {{nothing to train: the model has no parameter that is not frozen; see --train and --freeze, or use --loss=none}}
func.func @forward(%x: tensor<f32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}) {
  return %x : tensor<f32>
}

// -----

// expected-error @+1 {{@forward returns no loss: run attach-loss first}}
func.func @forward(%w: tensor<f32> {mpc.role = "parameter", mpc.name = "w"}) -> (tensor<f32> {mpc.role = "output", mpc.name = "y"}) {
  return %w : tensor<f32>
}

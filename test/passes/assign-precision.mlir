// RUN: mpc-opt %s --assign-precision --cse | FileCheck %s
// RUN: mpc-opt %s --assign-precision='precision=bf16' --cse | FileCheck %s --check-prefix=BF16
// RUN: mpc-opt %s --assign-precision='keep-fp32=^fc$' --cse | FileCheck %s --check-prefix=KEEP
// RUN: mpc-opt %s --assign-precision='precision=fp32' | FileCheck %s --check-prefix=FP32
// RUN: mpc-opt %s --assign-precision='precision=fp64' | FileCheck %s --check-prefix=FP64
// RUN: mpc-opt %s --assign-precision='report=true' | FileCheck %s --check-prefix=REPORT
// RUN: not mpc-opt %s --assign-precision='precision=fp8' 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not mpc-opt %s --assign-precision='keep-fp32=[' 2>&1 | FileCheck %s --check-prefix=REGEX

// A graph input is f32, so the product rounds it; the parameter is rounded before its transpose; Relu computes in f32 between casts; the
// softmax, whose consumer is a product, is half; the output has the model's type.
// CHECK-LABEL: func.func @forward(%arg0: tensor<4x3xf32> {{.*}}, %arg1: tensor<5x3xf32>
// CHECK-DAG: %[[X:.*]] = arith.truncf %arg0 : tensor<4x3xf32> to tensor<4x3xf16>
// CHECK-DAG: %[[W:.*]] = arith.truncf %arg1 : tensor<5x3xf32> to tensor<5x3xf16>
// CHECK-DAG: %[[T:.*]] = mpc.transpose %[[W]] {{.*}} : tensor<5x3xf16> -> tensor<3x5xf16>
// CHECK-DAG: %[[B:.*]] = arith.truncf %arg2 : tensor<5xf32> to tensor<5xf16>
// CHECK: %[[Y:.*]] = mpc.matmul %[[X]], %[[T]] bias %[[B]] {{.*}} -> tensor<4x5xf16>
// CHECK: %[[YF:.*]] = arith.extf %[[Y]]
// CHECK: %[[R:.*]] = arith.maximumf %[[YF]], %{{.*}} : tensor<4x5xf32>
// CHECK: %[[RH:.*]] = arith.truncf %[[R]]
// CHECK: %[[S:.*]] = mpc.softmax %[[RH]] {{.*}} : tensor<4x5xf16>
// CHECK: %[[P:.*]] = mpc.matmul %[[S]], %{{.*}} -> tensor<4x2xf16>
// CHECK: %[[O:.*]] = arith.extf %[[P]]
// CHECK: return %[[O]]

// BF16: mpc.matmul {{.*}} -> tensor<4x5xbf16>

// KEEP: mpc.matmul {{.*}} -> tensor<4x5xf32>
// KEEP: %[[S:.*]] = mpc.softmax %{{.*}} : tensor<4x5xf32>
// KEEP: arith.truncf %[[S]]
// KEEP: mpc.matmul {{.*}} -> tensor<4x2xf16>

// FP32-NOT: truncf
// FP64-LABEL: func.func @forward(%arg0: tensor<4x3xf64>
// FP64: arith.constant dense<0.000000e+00> : tensor<4x5xf64>
// FP64: return %{{.*}} : tensor<4x2xf64>

// REPORT: Precision of @forward
// REPORT-NEXT: node op class stored reason
// REPORT-NEXT: t Transpose K follows of parameters and constants: follows its consumers
// REPORT-NEXT: fc Gemm H f16 half operands, f32 accumulation
// REPORT-NEXT: relu Relu K f16 follows its producer
// REPORT-NEXT: sm Softmax F° f16 f32 inside, a consumer computes in half
// REPORT-NEXT: out MatMul H f16 half operands, f32 accumulation

// UNKNOWN: error: --precision=fp8: fp16, bf16, fp32 or fp64
// REGEX: error: --keep-fp32=[: not a POSIX extended regular expression: brackets ([ ]) not balanced
func.func @forward(%x: tensor<4x3xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<5x3xf32> {mpc.role = "parameter", mpc.name = "w"},
    %b: tensor<5xf32> {mpc.role = "parameter", mpc.name = "b"}, %v: tensor<5x2xf32> {mpc.role = "parameter", mpc.name = "v"})
    -> (tensor<4x2xf32> {mpc.role = "output", mpc.name = "y"}) {
  %zero = arith.constant dense<0.0> : tensor<4x5xf32>
  %0 = mpc.transpose %w {permutation = array<i64: 1, 0>, mpc.node = "t", mpc.op = "Transpose"} : tensor<5x3xf32> -> tensor<3x5xf32>
  %1 = mpc.matmul %x, %0 bias %b {mpc.node = "fc", mpc.op = "Gemm"} : (tensor<4x3xf32>, tensor<3x5xf32>, tensor<5xf32>) -> tensor<4x5xf32>
  %2 = arith.maximumf %1, %zero {mpc.node = "relu", mpc.op = "Relu"} : tensor<4x5xf32>
  %3 = mpc.softmax %2 {axis = 1 : i64, mpc.node = "sm", mpc.op = "Softmax"} : tensor<4x5xf32>
  %4 = mpc.matmul %3, %v {mpc.node = "out", mpc.op = "MatMul"} : (tensor<4x5xf32>, tensor<5x2xf32>) -> tensor<4x2xf32>
  return %4 : tensor<4x2xf32>
}

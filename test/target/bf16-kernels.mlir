// RUN: mpc-opt %s --convert-kernels-to-llvm="bf16=true bf16-width=16 loops=true" | FileCheck %s
// RUN: mpc-opt %s --convert-kernels-to-llvm="bf16=true bf16-width=8" | FileCheck %s --check-prefix=EIGHT
// RUN: mpc-opt %s --convert-kernels-to-llvm="bf16=false" | FileCheck %s --check-prefix=INTEGERS
// RUN: mpc-opt %s --convert-kernels-to-llvm="bf16=true f16=true" | FileCheck %s --check-prefix=ROUNDINGS

// Where the CPU rounds to bf16, LLVM's vectorizer is told how many elements to take at once: it believes this instruction dearer, the wider it is.

// CHECK: #[[WIDTH:.*]] = #llvm.loop_vectorize<disable = false, width = 16 : i32>
// CHECK: #[[LOOP:.*]] = #llvm.loop_annotation<vectorize = #[[WIDTH]]>
// EIGHT: #llvm.loop_vectorize<disable = false, width = 8 : i32>
// INTEGERS-NOT: loop_vectorize

// CHECK-LABEL: @rounds.body
// CHECK:         scf.for
// CHECK:           arith.truncf {{.*}} : f32 to bf16
// CHECK:         } {loop_annotation = #[[LOOP]]}
func.func private @rounds(%x: tensor<4096xf32>) -> tensor<4096xbf16> attributes {mpc.kernel = #mpc.kernel<map, domain = [4096], split = 0, aliases = [-1]>} {
  %0 = math.absf %x : tensor<4096xf32>
  %1 = arith.truncf %0 : tensor<4096xf32> to tensor<4096xbf16>
  return %1 : tensor<4096xbf16>
}

// Nothing is rounded to bf16 here.
// CHECK-LABEL: @reads.body
// CHECK:         scf.for
// CHECK-NOT:   loop_annotation
func.func private @reads(%x: tensor<4096xbf16>) -> tensor<4096xf16> attributes {mpc.kernel = #mpc.kernel<map, domain = [4096], split = 0, aliases = [-1]>} {
  %0 = arith.extf %x : tensor<4096xbf16> to tensor<4096xf32>
  %1 = arith.truncf %0 : tensor<4096xf32> to tensor<4096xf16>
  return %1 : tensor<4096xf16>
}

// A maximum must be taken in order as far as LLVM knows: no hint, which would only be answered by a warning.
// CHECK-LABEL: @maximum.body
// CHECK:         scf.for
// CHECK:           arith.truncf {{.*}} : f32 to bf16
// CHECK-NOT:   loop_annotation
// CHECK:         return
func.func private @maximum(%x: tensor<8x4096xf32>) -> tensor<8xf32> attributes {mpc.kernel = #mpc.kernel<row, domain = [8, 4096], split = 1, aliases = [-1]>} {
  %0 = arith.truncf %x : tensor<8x4096xf32> to tensor<8x4096xbf16>
  %1 = arith.extf %0 : tensor<8x4096xbf16> to tensor<8x4096xf32>
  %2 = mpc.reduce max %1 {axes = array<i64: 1>} : tensor<8x4096xf32> -> tensor<8xf32>
  return %2 : tensor<8xf32>
}

// A rounding that is widened again at once stays, under a sum in any order that may be contracted; the conversions carry no flag,
// by which LLVM would delete the pair.
// CHECK-LABEL: @stays.body
// CHECK:         %[[PRODUCT:.*]] = arith.mulf {{.*}} : f32
// CHECK-NEXT:    %[[HALF:.*]] = arith.truncf %[[PRODUCT]] : f32 to bf16
// CHECK-NEXT:    %[[WIDE:.*]] = arith.extf %[[HALF]] : bf16 to f32
// CHECK:         arith.addf {{.*}} fastmath<reassoc,contract>
// ROUNDINGS-LABEL: @stays.body
// ROUNDINGS:         %[[PRODUCT:.*]] = llvm.fmul {{.*}} : f32
// ROUNDINGS-NEXT:    %[[HALF:.*]] = llvm.fptrunc %[[PRODUCT]] : f32 to bf16
// ROUNDINGS-NEXT:    llvm.bitcast %[[HALF]] : bf16 to i16
func.func private @stays(%x: tensor<8x4096xf32>) -> tensor<8xf32> attributes {mpc.kernel = #mpc.kernel<row, domain = [8, 4096], split = 1, aliases = [-1]>} {
  %0 = arith.mulf %x, %x : tensor<8x4096xf32>
  %1 = arith.truncf %0 : tensor<8x4096xf32> to tensor<8x4096xbf16>
  %2 = arith.extf %1 : tensor<8x4096xbf16> to tensor<8x4096xf32>
  %3 = mpc.reduce sum %2 {axes = array<i64: 1>} : tensor<8x4096xf32> -> tensor<8xf32>
  return %3 : tensor<8xf32>
}

// ROUNDINGS-LABEL: @stays_in_f16.body
// ROUNDINGS:         %[[PRODUCT:.*]] = llvm.fmul {{.*}} : f32
// ROUNDINGS-NEXT:    %[[HALF:.*]] = llvm.fptrunc %[[PRODUCT]] : f32 to f16
// ROUNDINGS-NEXT:    %{{.*}} = llvm.fpext %[[HALF]] : f16 to f32
func.func private @stays_in_f16(%x: tensor<4096xf32>) -> tensor<4096xf32> attributes {mpc.kernel = #mpc.kernel<map, domain = [4096], split = 0, aliases = [-1]>} {
  %0 = arith.mulf %x, %x : tensor<4096xf32>
  %1 = arith.truncf %0 : tensor<4096xf32> to tensor<4096xf16>
  %2 = arith.extf %1 : tensor<4096xf16> to tensor<4096xf32>
  %3 = arith.addf %2, %x : tensor<4096xf32>
  return %3 : tensor<4096xf32>
}

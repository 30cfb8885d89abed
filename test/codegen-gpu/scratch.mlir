// RUN: mpc-opt %s --fuse --plan | FileCheck %s --check-prefix=CPU
// RUN: mpc-opt %s --fuse --plan=target=cuda | FileCheck %s --check-prefix=GPU

// The scratch of a column kernel's launch lies in the arena: a partial sum per column and chunk of rows, 32 chunks on the CPU and 64 on a GPU.
// CPU: mpc.region_bytes = {{.*}}arena = 8192 :
// GPU: mpc.region_bytes = {{.*}}arena = 16384 :
// GPU: mpc.launch {{.*}}mpc.scratch = #mpc.buffer<arena, 0>
func.func @forward(%x: tensor<4096x64xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<64xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.reduce sum %x {axes = array<i64: 0>} : tensor<4096x64xf32> -> tensor<64xf32>
  return %0 : tensor<64xf32>
}

// The parts of a product with a long sum: 8 parts of 16×16 on a GPU; a CPU's library has memory of its own.
// CPU-LABEL: func.func @gradient
// CPU-NOT: mpc.scratch
// GPU-LABEL: func.func @gradient
// GPU: mpc.matmul {{.*}}mpc.scratch = #mpc.buffer<arena, 0>
func.func @gradient(%x: tensor<2048x16xf32> {mpc.role = "input", mpc.name = "a"}, %g: tensor<2048x16xf32> {mpc.role = "input", mpc.name = "b"}) -> (tensor<16x16xf32> {mpc.role = "output", mpc.name = "c"}) {
  %0 = mpc.matmul %x, %g {transpose_lhs} : (tensor<2048x16xf32>, tensor<2048x16xf32>) -> tensor<16x16xf32>
  return %0 : tensor<16x16xf32>
}

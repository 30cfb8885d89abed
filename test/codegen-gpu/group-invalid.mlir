// RUN: mpc-opt %s --convert-kernels-to-nvvm --split-input-file --verify-diagnostics

// The layout of a group that nobody can make code of.

// expected-error@+1 {{mpc.group_layout: has not all of members, width, reduction, chunked, own (launches with mpc.group give their kernel a layout)}}
func.func private @k(%x: tensor<1073741824xf32>) -> tensor<1073741824xf32>
    attributes {mpc.kernel = #mpc.kernel<map, domain = [1073741824], split = 0, aliases = [-1]>, mpc.group_layout = {members = 2 : i64}} {
  %0 = arith.addf %x, %x : tensor<1073741824xf32>
  return %0 : tensor<1073741824xf32>
}

// -----

// expected-error@+1 {{mpc.group_layout: is no dictionary}}
func.func private @k(%x: tensor<1073741824xf32>) -> tensor<1073741824xf32>
    attributes {mpc.kernel = #mpc.kernel<map, domain = [1073741824], split = 0, aliases = [-1]>, mpc.group_layout} {
  %0 = arith.addf %x, %x : tensor<1073741824xf32>
  return %0 : tensor<1073741824xf32>
}

// -----

// expected-error@+1 {{mpc.group_layout: there is no such group}}
func.func private @k(%x: tensor<1073741824xf32>) -> tensor<1073741824xf32>
    attributes {mpc.kernel = #mpc.kernel<map, domain = [1073741824], split = 0, aliases = [-1]>,
                mpc.group_layout = {members = 2 : i64, width = 0 : i64, reduction = false, chunked = false, own = array<i64: 0, 1>}} {
  %0 = arith.addf %x, %x : tensor<1073741824xf32>
  return %0 : tensor<1073741824xf32>
}

// -----

// expected-error@+1 {{mpc.group_layout: own is no ascending list of the kernel's buffers}}
func.func private @k(%x: tensor<1073741824xf32>) -> tensor<1073741824xf32>
    attributes {mpc.kernel = #mpc.kernel<map, domain = [1073741824], split = 0, aliases = [-1]>,
                mpc.group_layout = {members = 2 : i64, width = 4 : i64, reduction = false, chunked = false, own = array<i64: 0, 2>}} {
  %0 = arith.addf %x, %x : tensor<1073741824xf32>
  return %0 : tensor<1073741824xf32>
}

// -----

// expected-error@+1 {{mpc.group_layout: is not for this kernel}}
func.func private @k(%x: tensor<64xf32>) -> tensor<64xf32>
    attributes {mpc.kernel = #mpc.kernel<map, domain = [64], split = 0, aliases = [-1]>,
                mpc.group_layout = {members = 2 : i64, width = 4 : i64, reduction = false, chunked = false, own = array<i64: 0, 1>}} {
  %0 = arith.addf %x, %x : tensor<64xf32>
  return %0 : tensor<64xf32>
}

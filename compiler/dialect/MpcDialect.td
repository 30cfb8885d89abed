//===- MpcDialect.td - the core-level dialect and its attributes -----------===//
//
// The core level is upstream `arith` and `math` on tensors for elementwise
// mathematics, and `mpc` operations where a library call, an index map or a saved
// value matters. See docs/architecture.md for the levels and for the roles of
// function arguments.
//
//===----------------------------------------------------------------------===//

#ifndef MPC_DIALECT
#define MPC_DIALECT

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

def Mpc_Dialect : Dialect {
  let name = "mpc";
  let cppNamespace = "::mpc";
  let summary = "Training programs on statically shaped tensors";
  let useDefaultAttributePrinterParser = 1;
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
  let hasConstantMaterializer = 1;
  let extraClassDeclaration = [{
    /// Discardable attributes on core operations, set by the ONNX conversion: the name and the operator type of the node an
    /// operation came from. Diagnostics, `--keep-fp32` and the precision table read them.
    static constexpr llvm::StringLiteral kNodeAttr = "mpc.node";
    static constexpr llvm::StringLiteral kOpAttr = "mpc.op";
    /// Argument and result attributes of core-level functions (docs/architecture.md, "Function arguments").
    static constexpr llvm::StringLiteral kRoleAttr = "mpc.role";
    static constexpr llvm::StringLiteral kNameAttr = "mpc.name";
    static constexpr llvm::StringLiteral kWeightsAttr = "mpc.weights";
    static constexpr llvm::StringLiteral kTiedAttr = "mpc.tied";
    /// Set on functions that `fuse` outlines; value: #mpc.kernel.
    static constexpr llvm::StringLiteral kKernelAttr = "mpc.kernel";
    /// One #mpc.buffer per result, set by `plan`.
    static constexpr llvm::StringLiteral kBuffersAttr = "mpc.buffers";
    static constexpr llvm::StringLiteral kBufferAttr = "mpc.buffer";
  }];
}

class Mpc_Attr<string name, string attrMnemonic> : AttrDef<Mpc_Dialect, name> {
  let mnemonic = attrMnemonic;
}

def Mpc_WeightsAttr : Mpc_Attr<"Weights", "weights"> {
  let summary = "Where a tensor's initial data lie";
  let description = [{
    A range of bytes of a file, in the tensor's row-major little-endian form: the model file, or an external data file. An empty
    `file` is a range of the importer's own buffer (initializers stored as typed protobuf fields). `type` is the element type the data
    have there. The data are mapped, never copied into attributes: see `mpc::WeightStore`.
  }];
  let parameters = (ins StringRefParameter<"path">:$file, "int64_t":$offset, "int64_t":$bytes, "::mlir::Type":$type);
  let assemblyFormat = "`<` $file `,` $offset `,` $bytes `,` $type `>`";
}

def Mpc_KernelKind : I32EnumAttr<"KernelKind", "iteration pattern of a fused kernel", [
    I32EnumAttrCase<"map", 0>, I32EnumAttrCase<"row", 1>, I32EnumAttrCase<"column", 2>]> {
  let cppNamespace = "::mpc";
  let genSpecializedAttr = 0;
}

def Mpc_KernelAttr : Mpc_Attr<"Kernel", "kernel"> {
  let summary = "How a fused kernel iterates";
  let description = [{
    `domain` is the iteration space. map: every result has the shape `domain`. row: the first `split` dimensions are the rows; every
    reduction in the body reduces exactly the others of a value of shape `domain`; results have the shape of the rows or of `domain`.
    column: the first `split` dimensions are reduced, by every reduction in the body; results have the shape of the others.
    `aliases[i]` is the argument whose buffer result i overwrites, or -1; such an argument is only read at the element being written.
  }];
  let parameters = (ins EnumParameter<Mpc_KernelKind>:$kind, "::mlir::DenseI64ArrayAttr":$domain, "int64_t":$split,
                        "::mlir::DenseI64ArrayAttr":$aliases);
  let assemblyFormat = "`<` $kind `,` `domain` `=` $domain `,` `split` `=` $split `,` `aliases` `=` $aliases `>`";
}

def Mpc_RegionKind : I32EnumAttr<"RegionKind", "memory region of a planned program", [
    I32EnumAttrCase<"states", 0>,        // live as long as the run: weights, moments, counters
    I32EnumAttrCase<"inputs", 1>,        // written by the host before each call: batch, labels, number of samples
    I32EnumAttrCase<"arena", 2>,         // intermediate values, offsets shared by lifetime
    I32EnumAttrCase<"gradients", 3>,     // results of @gradients that @apply and @accumulate read
    I32EnumAttrCase<"accumulators", 4>,  // only allocated where gradients are accumulated
    I32EnumAttrCase<"constants", 5>,     // read only, part of the program
    I32EnumAttrCase<"outputs", 6>]> {    // results the host reads: loss, count, norms, predictions
  let cppNamespace = "::mpc";
  let genSpecializedAttr = 0;
}

def Mpc_BufferAttr : Mpc_Attr<"Buffer", "buffer"> {
  let summary = "A planned buffer: region and byte offset, 64-byte aligned";
  let parameters = (ins EnumParameter<Mpc_RegionKind>:$region, "int64_t":$offset);
  let assemblyFormat = "`<` $region `,` $offset `>`";
}

class Mpc_Op<string mnemonic, list<Trait> traits = []> : Op<Mpc_Dialect, mnemonic, traits>;

#endif

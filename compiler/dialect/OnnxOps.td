//===- OnnxOps.td - the graph as it stands in the file -------------------------===//

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"

def Onnx_Dialect : Dialect {
  let name = "onnx";
  let cppNamespace = "::mpc::onnx";
  let summary = "An ONNX graph, one generic operation per node";
  let dependentDialects = ["::mpc::MpcDialect"];
  let useDefaultTypePrinterParser = 1;
}

def Onnx_SequenceType : TypeDef<Onnx_Dialect, "Sequence"> {
  let mnemonic = "sequence";
  let summary = "A sequence of tensors";
}

def Onnx_NodeOp : Op<Onnx_Dialect, "node"> {
  let summary = "A node";
  let description = [{
    `onnx_attributes` holds the ONNX attributes by name: i64, f32 and string attributes; DenseI64ArrayAttr, DenseF32ArrayAttr and ArrayAttr of strings for
    lists; tensors as elements attributes, or #mpc.weights where they are large. An operand that the node leaves out is an onnx.none.
    `since_version` is the opset version in which the node's definition was last changed, as the ONNX library gives it for the model's opset.
    Result types are what ONNX shape inference found: tensor<*xf32> where it found no shape.

    ```mlir
    %1 = onnx.node "Relu" 14 "relu_0" (%0) {} : (tensor<64x512xf32>) -> tensor<64x512xf32>
    ```
  }];
  let arguments = (ins StrAttr:$op_type, I64Attr:$since_version, StrAttr:$node_name, Variadic<AnyType>:$inputs, DictionaryAttr:$onnx_attributes,
                       OptionalAttr<StrAttr>:$domain);
  let results = (outs Variadic<AnyType>);
  let regions = (region VariadicRegion<AnyRegion>:$graphs);
  let assemblyFormat = "$op_type $since_version $node_name `(` $inputs `)` $onnx_attributes ($graphs^)? attr-dict `:` functional-type($inputs, results)";
}

def Onnx_NoneOp : Op<Onnx_Dialect, "none"> {
  let summary = "An optional operand that was left out";
  let results = (outs NoneType:$result);
  let assemblyFormat = "attr-dict";
}

def Onnx_YieldOp : Op<Onnx_Dialect, "yield", [Terminator]> {
  let summary = "The outputs of a subgraph (If)";
  let arguments = (ins Variadic<AnyType>:$outputs);
  let assemblyFormat = "($outputs^ `:` type($outputs))? attr-dict";
}

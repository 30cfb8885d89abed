//===- SimDriverDnnFrontendTest.cpp - the simulated cuDNN, through NVIDIA's own headers -----===//
//
// The frontend asks of a library what its authors need: what it calls and expects, not what we
// think that it does.
//
//===----------------------------------------------------------------------------------------===//

#include "SimDriverDnnSupport.h"
// All of cudnn_frontend.h but what needs a JSON library.
#include <cudnn_frontend_ConvDesc.h>
#include <cudnn_frontend_Engine.h>
#include <cudnn_frontend_EngineConfig.h>
#include <cudnn_frontend_ExecutionPlan.h>
#include <cudnn_frontend_Heuristics.h>
#include <cudnn_frontend_Operation.h>
#include <cudnn_frontend_OperationGraph.h>
#include <cudnn_frontend_PointWiseDesc.h>
#include <cudnn_frontend_Resample.h>
#include <cudnn_frontend_Tensor.h>
#include <cudnn_frontend_VariantPack.h>
//
#include <cudnn_frontend/graph_interface.h>

using namespace mpc::test;
namespace fe = cudnn_frontend;

void *cudnn_frontend::cudnn_dlhandle = nullptr;

namespace {
void good(fe::error_t error) { EXPECT_TRUE(error.is_good()) << error.get_message(); }

std::shared_ptr<fe::graph::Tensor_attributes> input(fe::graph::Graph &graph,
                                                    const HostTensor &tensor) {
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_uid(tensor.uid)
                          .set_dim(tensor.extents)
                          .set_stride(tensor.strides));
}

void output(const std::shared_ptr<fe::graph::Tensor_attributes> &attributes,
            const HostTensor &tensor) {
  attributes->set_output(true)
      .set_uid(tensor.uid)
      .set_dim(tensor.extents)
      .set_stride(tensor.strides);
}

template <typename Attributes> Attributes window(const SimConvolution &c) {
  return Attributes()
      .set_pre_padding(c.w.pre)
      .set_post_padding(c.w.post)
      .set_stride(c.w.strides)
      .set_dilation(c.w.dilations);
}

void describe(fe::graph::Graph &graph, const SimConvolution &c) {
  if (c.w.which == 1) {
    output(graph.conv_dgrad(input(graph, c.y), input(graph, c.filter),
                            window<fe::graph::Conv_dgrad_attributes>(c)),
           c.result);
    return;
  }
  if (c.w.which == 2) {
    output(graph.conv_wgrad(input(graph, c.y), input(graph, c.x),
                            window<fe::graph::Conv_wgrad_attributes>(c)),
           c.result);
    return;
  }
  auto y = graph.conv_fprop(input(graph, c.x), input(graph, c.filter),
                            window<fe::graph::Conv_fprop_attributes>(c));
  auto sum = graph.pointwise(y, input(graph, c.bias),
                             fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD));
  output(graph.pointwise(sum,
                         fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::RELU_FWD)),
         c.result);
}

void run(SimConvolution &c) {
  fe::cudnn_dlhandle = dlopen(MPC_TEST_SIM_DNN, RTLD_NOW | RTLD_LOCAL);
  fe::graph::Graph graph;
  graph.set_io_data_type(c.w.type == CUDNN_DATA_HALF ? fe::DataType_t::HALF : fe::DataType_t::FLOAT)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  describe(graph, c);
  good(graph.validate());
  good(graph.build_operation_graph(c.handle));
  good(graph.create_execution_plans({fe::HeurMode_t::A}));
  graph.deselect_numeric_notes(
      {fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION, fe::NumericalNote_t::DOWN_CONVERT_INPUTS,
       fe::NumericalNote_t::NONDETERMINISTIC, fe::NumericalNote_t::WINOGRAD});
  graph.deselect_workspace_greater_than(1 << 20);
  good(graph.check_support(c.handle));
  good(graph.build_plans(c.handle));
  int64_t bytes = graph.get_workspace_size();
  if (bytes > 0)
    c.gpu.ok(c.gpu.cuMemAlloc(&c.workspace, bytes));
  std::unordered_map<int64_t, void *> addresses;
  auto [uids, pointers] = c.tensors();
  for (size_t i = 0; i < uids.size(); ++i)
    addresses[uids[i]] = std::bit_cast<void *>(pointers[i]);
  good(graph.execute(c.handle, addresses, std::bit_cast<void *>(c.workspace)));
  EXPECT_LE(c.error(), 1);
}
} // namespace

TEST(SimDnnFrontend, Convolutions) {
  for (int which = 0; which < 3; ++which) {
    WantedConvolution w;
    w.which = which;
    w.type = w.resultType = CUDNN_DATA_HALF;
    w.hasBias = w.hasRelu = which == 0;
    onConvolution(w, run);
  }
}

//===- Graph.cpp - libcudnn_graph.so.9 of the simulated cuDNN -----------------------------===//
//
// NVIDIA's libcudnn.so.9 is little more than a list of names: what they do is in this library,
// which is opened at the first call, and without which the process ends. Here it is the other way
// around: this one is empty, but the simulated libcudnn.so.9 insists on it.
//
//===--------------------------------------------------------------------------------------===//

#include <cudnn.h>

cudnnStatus_t cudnnGraphVersionCheck() { return CUDNN_STATUS_SUCCESS; }

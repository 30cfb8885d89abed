//===- Engines.h - what executes a graph in the simulated cuDNN ---------------------------===//

#ifndef MPC_RUNTIME_SIM_DNN_ENGINES_H
#define MPC_RUNTIME_SIM_DNN_ENGINES_H

#include "runtime/sim/dnn/Objects.h"
#include <span>

namespace mpc::sim::dnn {

struct Engine {
  const char *name;  ///< for messages
  const char *timed; ///< for MPC_SIM_TIMES
  std::vector<cudnnBackendNumericalNote_t> numericalNotes = {};
  std::vector<cudnnBackendBehaviorNote_t> behaviorNotes = {};
  /// Whether the heuristics offer it, of those graphs that it is for (isFor()).
  bool (*isOffered)(const Problem &problem, int capability);
  Arithmetic (*arithmetic)(const Problem &problem);
  /// How many results, or parts of them, the workspace holds; of attention, scores in halves.
  int64_t (*parts)(const Problem &problem);
  // Without these no plan is made.
  int64_t channels = 1;     ///< of x and y (in a group), or keys, come in this many
  bool isSymmetric = false; ///< the same padding on both sides
  /// Of its one knob, CUDNN_KNOB_TYPE_TILE_SIZE: how many products it adds up before the next ones.
  /// 0: it has none.
  int64_t tile = 0;
  bool isFused = false; ///< it is for attention, and for nothing else

  bool isFor(const Problem &p, int capability) const {
    return isFused == (p.fused != nullptr) && isOffered(p, capability);
  }
  bool isCompiled() const { return !behaviorNotes.empty(); }
  int64_t workspaceBytes(const Problem &p) const {
    return p.fused ? parts(p) * p.fused->scores.elements() * 2
                   : parts(p) * p.result.elements() * static_cast<int64_t>(sizeof(float));
  }
};

/// All of them; an engine's place is its global index.
std::span<const Engine> engines();

/// An engine, and the value of its knob; 0: as it is without.
struct Offer {
  int64_t engine = 0, tile = 0;
};

/// What there is for a graph, in the order of the heuristics: the careless ones first.
std::vector<Offer> offered(const Problem &problem, int capability, cudnnBackendHeurMode_t mode);

/// The value of the knob in a configuration; 0 where it is not turned.
int64_t tileOf(const Descriptor &configuration);

/// What an engine finds out when a plan is made.
cudnnStatus_t checkPlan(const Engine &engine, const Problem &problem);

} // namespace mpc::sim::dnn

#endif // MPC_RUNTIME_SIM_DNN_ENGINES_H

// What a model answers where some ranks have run out of data.
#include <torch/nn/module.h>

#include "strategy/ddp/ddp_model.h"
#include "strategy/ddp/replica_digest.h"

namespace accelerate {

// Averaging one pass more changes no sum; a static graph must see its first pass whole.
bool DdpModel::would_reduce() const {
  return reducer_ != nullptr && (averages() || sync_next_ || reducer_->awaits_first_pass());
}

bool DdpModel::is_reached_by(const compat::GraphNodes& graph) const {
  if (!reducer_) return false;
  for (size_t i = 0; i < parameters_.tensors.size(); ++i) {
    if (reducer_->is_reached(i, graph)) return true;
  }
  return false;
}

void DdpModel::require_all_reached_by(const compat::GraphNodes& graph) const {
  if (options_.find_unused_parameters || options_.static_graph) return;
  const std::string names = names_where([&](size_t i) { return !reducer_->is_reached(i, graph); });
  if (!names.empty()) refuse_unused(names);
}

void DdpModel::answer_buffers(int source) { broadcast(buffers_, source); }

void DdpModel::answer_before_backward() {
  require_usable("join_uneven_inputs");
  reducer_->answer_arm();
}

void DdpModel::answer_reduction(bool delayed) {
  ++reduced_passes_;  // as on the ranks that ran the pass
  reducer_->answer_reduction(delayed);
}

void DdpModel::require_same_replica(size_t index, bool compares) const {
  accelerate::require_same_replica(
      *communicator_, *module_, index,
      compares && options_.check_replicas && averages() && module_->is_training(),
      "the end of join_uneven_inputs");
}

void DdpModel::copy_from(int source) {
  broadcast(parameters_.tensors, source);
  broadcast(buffers_, source);
  buffers_changed_ = false;
  if (!options_.static_graph || !usable() || reducer_->awaits_first_pass()) return;
  const at::Tensor counts =
      at::tensor(reducer_->static_graph_counts(), at::kLong).to(parameters_.tensors[0].device());
  broadcast({counts}, source);
  const at::Tensor received = counts.cpu();
  reducer_->set_static_graph_counts(
      {received.data_ptr<int64_t>(), received.data_ptr<int64_t>() + received.numel()});
}

}  // namespace accelerate

#include "strategy/ddp.h"

#include <torch/nn/modules/embedding.h>

#include <unordered_set>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "comm/process_group.h"
#include "compat/reducer.h"
#include "strategy/replica_check.h"
#include "strategy/single.h"

namespace accelerate {
namespace {

// As much as is copied into one message when parameters or buffers are broadcast.
constexpr size_t kBroadcastBytes = 250UL * 1024 * 1024;

struct TrainableParameters {
  std::vector<at::Tensor> tensors;
  std::vector<std::string> names;
  std::vector<bool> sparse;  // gets sparse gradients
};

TrainableParameters trainable_parameters(const torch::nn::Module& module) {
  std::unordered_set<const void*> sparse;
  for (const auto& child : module.modules()) {
    if (const auto* embedding = child->as<torch::nn::EmbeddingImpl>();
        embedding != nullptr && embedding->options.sparse()) {
      sparse.insert(embedding->weight.unsafeGetTensorImpl());
    } else if (const auto* bag = child->as<torch::nn::EmbeddingBagImpl>();
               bag != nullptr && bag->options.sparse()) {
      sparse.insert(bag->weight.unsafeGetTensorImpl());
    }
  }
  TrainableParameters result;
  std::unordered_set<const void*> seen;  // tied parameters are reduced once
  for (const auto& item : module.named_parameters()) {
    const void* identity = item.value().unsafeGetTensorImpl();
    if (!item.value().requires_grad() || !seen.insert(identity).second) continue;
    result.tensors.push_back(item.value());
    result.names.push_back(item.key());
    result.sparse.push_back(sparse.count(identity) > 0);
  }
  return result;
}

std::vector<at::Tensor> detached(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.numel() > 0) result.push_back(tensor.detach());
  }
  return result;
}

class DdpModel final : public ModelStrategy {
 public:
  DdpModel(std::shared_ptr<torch::nn::Module> module, TrainableParameters parameters,
           std::shared_ptr<Communicator> communicator, const DdpOptions& options)
      : module_(std::move(module)),
        communicator_(std::move(communicator)),
        options_(options),
        group_(comm::process_group_of(*communicator_)),
        parameters_(std::move(parameters)),
        frozen_(frozen_parameters(*module_)),
        buffers_(module_->buffers()) {
    for (const at::Tensor& tensor : parameters_.tensors) {
      identities_.insert(tensor.unsafeGetTensorImpl());
    }
    copy_from_rank_0(module_->parameters(), "broadcast of parameters");
    copy_from_rank_0(buffers_, "broadcast of buffers");
    auto made = compat::make_reducer(
        parameters_.tensors, parameters_.names, parameters_.sparse, group_,
        {.bucket_bytes_cap = static_cast<size_t>(options.bucket_cap_mb * 1024 * 1024),
         .find_unused_parameters = options.find_unused_parameters,
         .gradient_as_bucket_view = options.gradient_as_bucket_view,
         .static_graph = options.static_graph});
    reducer_ = std::move(made.reducer);
    logger_ = std::move(made.logger);
  }

  // Running statistics change in training only, so one broadcast after the last training pass
  // serves all evaluation that follows.
  void before_forward() override {
    require_usable("forward");
    if (!options_.broadcast_buffers || buffers_.empty()) return;
    const bool training = module_->is_training() && at::GradMode::is_enabled();
    if (gradient_sync_ && (training || buffers_changed_)) {
      copy_from_rank_0(buffers_, "broadcast of buffers in forward");
      buffers_changed_ = false;
    }
    buffers_changed_ = buffers_changed_ || training;
  }

  void before_backward(const at::Tensor& loss) override {
    require_usable("backward");
    require_same_trainable_set();
    if (options_.static_graph && reducer_->holds_unreduced_gradients()) {
      refuse({.what = "a backward pass went past accelerator.backward(loss), which a "
                      "static graph cannot make good",
              .where = "backward",
              .hint = "call accelerator.backward(loss) instead of loss.backward()"});
    }
    in_backward_ = true;
    unreduced_before_ = reducer_->holds_unreduced_gradients();
    reducer_->set_holds_unreduced_gradients(false);
    // Averaging one pass more changes no sum; a static graph must see its first pass whole.
    first_static_pass_ = reducer_->awaits_first_pass();
    reduces_ = gradient_sync_ || first_static_pass_;
    if (!reduces_) return;
    const bool walk_graph = options_.find_unused_parameters && !options_.static_graph;
    reducer_->arm(walk_graph ? std::vector<at::Tensor>{loss} : std::vector<at::Tensor>{});
  }

  void after_backward() override {
    const bool unreduced = reducer_->holds_unreduced_gradients();
    if (reduces_ && (reducer_->is_incomplete() || (unreduced && !first_static_pass_))) {
      refuse({.what = "parameters took no part in the loss and so hold up the others: " +
                      names_without_gradient(),
              .where = "backward",
              .hint = options_.static_graph
                          ? "the graph changes from pass to pass: leave static_graph off"
                          : "set .ddp = {.find_unused_parameters = true}, or freeze them"});
    }
    if (reduces_ && unreduced) reducer_->delay_all_reduce();  // a static graph has counted them
    // What came before this pass was reduced with it, unless the loss did not reach this model.
    const bool untouched = !reduces_ || reducer_->is_armed();
    reducer_->disarm();
    reducer_->set_holds_unreduced_gradients(untouched && unreduced_before_);
    in_backward_ = false;
  }

  void set_gradient_sync(bool on) override { gradient_sync_ = on; }
  bool gradient_sync() const override { return gradient_sync_; }

  void require_synchronised(const at::Tensor& parameter) const override {
    if (!reducer_ || !gradient_sync_ || !reducer_->holds_unreduced_gradients()) return;
    if (!parameter.grad().defined() || identities_.count(parameter.unsafeGetTensorImpl()) == 0) {
      return;
    }
    refuse({.what = "the gradients are those of this rank alone: they did not go "
                    "through accelerator.backward(loss)",
            .where = "optimizer.step()",
            .hint = "call accelerator.backward(loss) instead of loss.backward()"});
  }

  void release() override {
    logger_.reset();
    reducer_.reset();
  }
  bool usable() const override { return reducer_ != nullptr && !in_backward_; }

 private:
  [[noreturn]] void refuse(ErrorInfo info) const {
    UsageError error(std::move(info));
    error.set_rank(communicator_->rank(), communicator_->world_size());
    throw error;
  }

  static std::vector<std::pair<std::string, at::Tensor>> frozen_parameters(
      const torch::nn::Module& module) {
    std::vector<std::pair<std::string, at::Tensor>> frozen;
    for (const auto& item : module.named_parameters()) {
      if (!item.value().requires_grad()) frozen.emplace_back(item.key(), item.value());
    }
    return frozen;
  }

  void require_usable(const char* where) const {
    if (usable()) return;
    refuse({.what = reducer_ ? "an earlier backward pass of this model failed"
                             : "this model was released by free_memory()",
            .where = where,
            .hint = "prepare it again, on all ranks"});
  }

  void require_same_trainable_set() const {
    for (const auto& [name, parameter] : frozen_) {
      if (!parameter.requires_grad()) continue;
      refuse({.what = "parameter '" + name +
                      "' was frozen when the model was prepared "
                      "and needs a gradient now",
              .where = "backward",
              .hint = "free_memory() and prepare the model again, on all ranks"});
    }
  }

  void copy_from_rank_0(const std::vector<at::Tensor>& tensors, const char* operation) {
    const std::vector<at::Tensor> targets = detached(tensors);
    if (targets.empty()) return;
    at::NoGradGuard no_grad;
    communicator_->guard(operation,
                         [&] { c10d::broadcast_coalesced(group_, targets, kBroadcastBytes); });
  }

  std::string names_without_gradient() const {
    constexpr size_t kMostNames = 8;
    std::string text;
    size_t count = 0;
    for (size_t i = 0; i < parameters_.tensors.size(); ++i) {
      if (parameters_.tensors[i].grad().defined()) continue;
      if (++count <= kMostNames) text += (count > 1 ? ", " : "") + parameters_.names[i];
    }
    if (count > kMostNames) text += " and " + std::to_string(count - kMostNames) + " more";
    return count == 0 ? "some that hold a gradient of an earlier pass" : text;
  }

  std::shared_ptr<torch::nn::Module> module_;
  std::shared_ptr<Communicator> communicator_;
  DdpOptions options_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  TrainableParameters parameters_;
  std::unordered_set<const void*> identities_;  // of these parameters
  std::vector<std::pair<std::string, at::Tensor>> frozen_;
  std::vector<at::Tensor> buffers_;
  std::shared_ptr<compat::GradientReducer> reducer_;  // null once released
  std::shared_ptr<c10d::Logger> logger_;
  bool gradient_sync_ = true;
  bool buffers_changed_ = false;
  bool in_backward_ = false;  // stays where a pass threw
  // Of the pass that runs:
  bool reduces_ = false;
  bool first_static_pass_ = false;
  bool unreduced_before_ = false;  // gradients that went past the accelerator before it
};

}  // namespace

DdpStrategy::DdpStrategy(std::shared_ptr<Communicator> communicator, const DdpOptions& options)
    : communicator_(std::move(communicator)), options_(options) {
  constexpr double kMostMegabytes = 1024.0 * 1024;
  if (!(options.bucket_cap_mb > 0 && options.bucket_cap_mb <= kMostMegabytes)) {
    throw UsageError({.what = "bucket_cap_mb must be positive and at most 1048576",
                      .where = "DdpOptions",
                      .hint = "leave it out for the default of 25"});
  }
}

std::shared_ptr<ModelStrategy> DdpStrategy::wrap(std::shared_ptr<torch::nn::Module> module) {
  require_same_model(*module, *communicator_);
  TrainableParameters parameters = trainable_parameters(*module);
  if (parameters.tensors.empty()) return std::make_shared<LocalModel>();
  return std::make_shared<DdpModel>(std::move(module), std::move(parameters), communicator_,
                                    options_);
}

std::unique_ptr<Strategy> make_strategy(std::shared_ptr<Communicator> communicator,
                                        const DdpOptions& options) {
  if (communicator->world_size() == 1) return std::make_unique<SingleStrategy>();
  return std::make_unique<DdpStrategy>(std::move(communicator), options);
}

}  // namespace accelerate

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
        names_(parameters.names),
        parameters_(parameters.tensors),
        buffers_(detached(module_->buffers())) {
    copy_from_rank_0(detached(module_->parameters()), "broadcast of parameters");
    copy_from_rank_0(buffers_, "broadcast of buffers");
    reducer_ = compat::make_reducer(
        std::move(parameters.tensors), parameters.names, std::move(parameters.sparse), group_,
        {.bucket_bytes_cap = static_cast<size_t>(options.bucket_cap_mb * 1024 * 1024),
         .find_unused_parameters = options.find_unused_parameters,
         .gradient_as_bucket_view = options.gradient_as_bucket_view,
         .static_graph = options.static_graph});
  }

  // Running statistics change in training only, so one broadcast after the last training pass
  // serves all evaluation that follows.
  void before_forward() override {
    if (!reducer_) {
      throw UsageError({.what = "this model was released",
                        .where = "forward, after free_memory",
                        .hint = "prepare it again"});
    }
    if (!options_.broadcast_buffers || !gradient_sync_ || buffers_.empty()) return;
    const bool training = module_->is_training() && at::GradMode::is_enabled();
    if (training || buffers_changed_) {
      copy_from_rank_0(buffers_, "broadcast of buffers in forward");
    }
    buffers_changed_ = training;
  }

  void before_backward(const at::Tensor& loss) override {
    if (!gradient_sync_) return;
    reducer_->prepare_for_forward();  // counts the iterations that reduce
    reducer_->rebuild_buckets();      // once, after the first
    const bool walk_graph = options_.find_unused_parameters && !options_.static_graph;
    reducer_->prepare_for_backward(walk_graph ? std::vector<at::Tensor>{loss}
                                              : std::vector<at::Tensor>{});
    ++synchronised_passes_;
  }

  void after_backward() override {
    if (!gradient_sync_) return;
    // With a static graph the first pass only counts how often each gradient arrives.
    if (options_.static_graph && synchronised_passes_ == 1) reducer_->delay_all_reduce();
    try {
      reducer_->check_finalized();
    } catch (const c10::Error&) {
      throw UsageError({.what = "parameters took no part in the loss and so hold up the others: " +
                                names_without_gradient(),
                        .where = "backward",
                        .hint = "set .ddp = {.find_unused_parameters = true}, or freeze them"});
    }
  }

  void set_gradient_sync(bool on) override { gradient_sync_ = on; }
  bool gradient_sync() const override { return gradient_sync_; }
  void release() override { reducer_.reset(); }
  bool needs_accelerator_backward() const override { return true; }

 private:
  void copy_from_rank_0(const std::vector<at::Tensor>& targets, const char* operation) {
    if (targets.empty()) return;
    at::NoGradGuard no_grad;
    communicator_->guard(operation,
                         [&] { c10d::broadcast_coalesced(group_, targets, kBroadcastBytes); });
  }

  std::string names_without_gradient() const {
    constexpr size_t kMostNames = 8;
    std::string text;
    size_t count = 0;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i].grad().defined()) continue;
      if (++count <= kMostNames) text += (count > 1 ? ", " : "") + names_[i];
    }
    if (count > kMostNames) text += " and " + std::to_string(count - kMostNames) + " more";
    return count == 0 ? "some that hold a gradient of an earlier pass" : text;
  }

  std::shared_ptr<torch::nn::Module> module_;
  std::shared_ptr<Communicator> communicator_;
  DdpOptions options_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> buffers_;         // share their memory with those of the module
  std::unique_ptr<c10d::Reducer> reducer_;  // null once released
  bool gradient_sync_ = true;
  bool buffers_changed_ = false;
  int64_t synchronised_passes_ = 0;
};

}  // namespace

DdpStrategy::DdpStrategy(std::shared_ptr<Communicator> communicator, const DdpOptions& options)
    : communicator_(std::move(communicator)), options_(options) {
  if (!(options.bucket_cap_mb > 0)) {
    throw UsageError({.what = "bucket_cap_mb must be positive",
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

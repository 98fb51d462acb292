#include "compat/reducer.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace accelerate::compat {

GraphNodes graph_of(const at::Tensor& loss) {
  GraphNodes seen;
  std::vector<const torch::autograd::Node*> open;
  const auto visit = [&](const torch::autograd::Edge& edge) {
    if (edge.function && seen.insert(edge.function.get()).second) {
      open.push_back(edge.function.get());
    }
  };
  if (loss.requires_grad()) visit(torch::autograd::impl::gradient_edge(loss));
  while (!open.empty()) {
    const torch::autograd::Node* node = open.back();
    open.pop_back();
    for (const auto& edge : node->next_edges()) visit(edge);
  }
  return seen;
}

// Multiplies the gradients of this rank by its scale before they are summed up over the ranks.
class GradientReducer::WeightedSum final : public c10d::CommHookInterface {
 public:
  explicit WeightedSum(GradientReducer& reducer) : reducer_(reducer) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    at::NoGradGuard no_grad;
    if (reducer_.scale_ == 0.0) {
      bucket.getBufferRef().zero_();  // whatever is not a number has no weight either
    } else {
      bucket.getBufferRef().mul_(reducer_.scale_);
    }
    return reducer_.run_allreduce_hook(bucket);
  }
  at::Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result);
  }

 private:
  GradientReducer& reducer_;  // owns this
};

void GradientReducer::set_share(int64_t weight, int64_t total) {
  // The reducer itself divides while it copies, but only by a whole number.
  if (!is_weighted_ && weight == 1 && total <= std::numeric_limits<int>::max()) {
    div_factor_ = static_cast<int>(total);
    return;
  }
  if (!is_weighted_) register_comm_hook(std::make_unique<WeightedSum>(*this));
  is_weighted_ = true;
  scale_ = total == 0 ? 0.0 : static_cast<double>(weight) / static_cast<double>(total);
}

// Filled by the threads of a backward pass.
struct GradientReducer::Watch {
  std::mutex mutex;
  std::vector<size_t> order;         // a parameter stands once for each time it got a gradient
  std::vector<std::uintptr_t> keys;  // of the hooks, by parameter
};

void GradientReducer::watch_first_pass() {
  using torch::autograd::variable_list;
  watch_ = std::make_shared<Watch>();
  for (size_t index = 0; index < grad_accumulators_.size(); ++index) {
    auto note = [watch = watch_.get(), index](const variable_list& outputs, const variable_list&) {
      const std::lock_guard<std::mutex> lock(watch->mutex);
      watch->order.push_back(index);
      return outputs;
    };
    watch_->keys.push_back(grad_accumulators_[index]->add_post_hook(
        std::make_unique<torch::autograd::utils::LambdaPostHook>(std::move(note))));
  }
}

bool GradientReducer::has_own_accumulator(size_t index) const {
  const auto* meta = torch::autograd::impl::get_autograd_meta(params_[index]);
  if (meta == nullptr) return false;
  // By their owners, which neither locks the weak pointer nor counts a reference.
  const std::weak_ptr<torch::autograd::Node>& present = meta->grad_accumulator_;
  const std::shared_ptr<torch::autograd::Node>& own = grad_accumulators_[index];
  return !present.owner_before(own) && !own.owner_before(present);
}

void GradientReducer::keep_accumulators() {
  for (size_t index = 0; index < params_.size(); ++index) {
    if (has_own_accumulator(index)) continue;
    torch::autograd::impl::set_grad_accumulator(params_[index], grad_accumulators_[index]);
  }
}

std::optional<size_t> GradientReducer::replaced_accumulator() const {
  for (size_t index = 0; index < params_.size(); ++index) {
    if (has_own_accumulator(index)) continue;
    if (torch::autograd::impl::try_get_grad_accumulator(params_[index]) != nullptr) return index;
  }
  return std::nullopt;
}

void GradientReducer::set_listener(std::function<void(size_t)> listener) {
  using torch::autograd::variable_list;
  for (size_t index = 0; index < listener_keys_.size(); ++index) {
    grad_accumulators_[index]->del_post_hook(listener_keys_[index]);
  }
  listener_keys_.clear();
  if (!listener) return;
  const auto shared = std::make_shared<std::function<void(size_t)>>(std::move(listener));
  for (size_t index = 0; index < grad_accumulators_.size(); ++index) {
    auto tell = [shared, index](const variable_list& outputs, const variable_list&) {
      (*shared)(index);
      return outputs;
    };
    listener_keys_.push_back(grad_accumulators_[index]->add_post_hook(
        std::make_unique<torch::autograd::utils::LambdaPostHook>(std::move(tell))));
  }
}

std::vector<size_t> GradientReducer::end_watch() {
  if (!watch_) return {};
  for (size_t index = 0; index < watch_->keys.size(); ++index) {
    grad_accumulators_[index]->del_post_hook(watch_->keys[index]);
  }
  std::vector<size_t> order;
  std::vector<bool> seen(params_.size(), false);
  const auto add = [&](size_t index) {
    if (!seen[index]) order.push_back(index);
    seen[index] = true;
  };
  // A gradient is ready when its last part has come.
  for (size_t i = watch_->order.size(); i-- > 0;) add(watch_->order[i]);
  std::ranges::reverse(order);
  for (size_t index = params_.size(); index-- > 0;) add(index);  // those that took no part
  watch_.reset();
  return order;
}

void GradientReducer::take_watched_order() {
  const std::vector<size_t> order = end_watch();
  if (!should_rebuild_buckets() || !rebuilt_param_indices_.empty()) return;
  for (const size_t index : order) push_rebuilt_params(index);
}

void GradientReducer::reduce_counted() {
  delay_all_reduce();
  take_watched_order();
}

void GradientReducer::reduce_postponed() {
  make_used_map();
  expect_autograd_hooks_ = true;  // as the end of the reduction wants it
  delay_all_reduce();
  local_used_work_->wait();
  // Filled from counts that only a static graph has.
  if (!static_graph_) unused_parameters_.clear();
  take_watched_order();
}

void GradientReducer::answer_reduction(bool postponed) {
  const bool first_static_pass = awaits_first_pass();
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> sums;
  at::Tensor used = at::zeros({static_cast<int64_t>(params_.size())},
                              at::TensorOptions().dtype(at::kInt).device(params_[0].device()));
  std::vector<at::Tensor> used_list{used};
  c10::intrusive_ptr<c10d::Work> used_sum;
  if (postponed) used_sum = process_group_->allreduce(used_list);
  for (size_t index = 0; index < buckets_.size(); ++index) {
    c10d::GradBucket bucket = zeros_like_bucket(index);
    sums.push_back(run_allreduce_hook(bucket));
  }
  if (!postponed && find_unused_parameters_ && !static_graph_) {
    used_sum = process_group_->allreduce(used_list);
  }
  for (const auto& sum : sums) sum->waitAndThrow();
  if (used_sum) used_sum->wait();

  if (first_static_pass) {
    num_bwd_calls_ = 1;
    local_used_map_.copy_(used);
    local_used_map_reduced_ = true;
    take_watched_order();
    return;
  }
  // Gradients become ready from the last parameter to the first.
  if (!postponed && should_rebuild_buckets() && rebuilt_param_indices_.empty()) {
    for (size_t index = params_.size(); index-- > 0;) push_rebuilt_params(index);
  }
}

c10d::GradBucket GradientReducer::zeros_like_bucket(size_t index) const {
  const Bucket& bucket = buckets_[index];
  at::NoGradGuard no_grad;
  const at::Tensor& first = bucket.variables.front();
  // The gradient of an embedding names rows.
  at::Tensor zeros = bucket.expect_sparse_gradient
                         ? at::_sparse_coo_tensor_with_dims(1, first.dim() - 1, first.sizes(),
                                                            first.options().layout(at::kSparse))
                         : at::zeros_like(bucket.gradients);
  return c10d::GradBucket(index, buckets_.size(), std::move(zeros), bucket.offsets, bucket.lengths,
                          bucket.sizes_vec, bucket.variables, std::nullopt);
}

void GradientReducer::make_used_map() {
  if (local_used_map_.defined()) return;
  const auto count = static_cast<int64_t>(params_.size());
  local_used_map_ = at::zeros({count}, at::kInt);
  local_used_map_dev_ =
      at::empty({count}, at::TensorOptions().dtype(at::kInt).device(params_[0].device()));
}

std::vector<int64_t> GradientReducer::static_graph_counts() const {
  std::vector<int64_t> counts(params_.size(), 0);
  for (const auto& [index, count] : numGradHooksTriggeredMap_) counts[index] = count;
  return counts;
}

void GradientReducer::set_static_graph_counts(const std::vector<int64_t>& counts) {
  unused_parameters_.clear();
  for (size_t index = 0; index < counts.size(); ++index) {
    numGradHooksTriggeredMap_[index] = static_cast<int>(counts[index]);
    if (counts[index] == 0) unused_parameters_.push_back(index);
  }
}

std::vector<int64_t> GradientReducer::gradient_order() const {
  std::vector<int64_t> order;
  if (has_rebuilt_bucket_) {
    for (const Bucket& bucket : buckets_) {
      order.insert(order.end(), bucket.variable_indices.begin(), bucket.variable_indices.end());
    }
  } else if (rebuilt_param_indices_.size() == params_.size()) {
    order.assign(rebuilt_param_indices_.begin(), rebuilt_param_indices_.end());
  }
  return order;
}

void GradientReducer::set_gradient_order(const std::vector<int64_t>& order) {
  std::vector<int64_t> sorted = order;
  std::ranges::sort(sorted);
  for (size_t index = 0; index < sorted.size(); ++index) {
    if (sorted[index] != static_cast<int64_t>(index)) return;
  }
  if (sorted.size() != params_.size()) return;
  if (!should_rebuild_buckets() || !rebuilt_param_indices_.empty()) return;
  for (const int64_t index : order) push_rebuilt_params(static_cast<size_t>(index));
}

ReducerAndLogger make_reducer(std::vector<at::Tensor> parameters,
                              const std::vector<std::string>& names, std::vector<bool> sparse,
                              c10::intrusive_ptr<c10d::ProcessGroup> group,
                              const ReducerOptions& options) {
  // Buckets are rebuilt after the first pass, in the order in which gradients became ready, unless
  // unused parameters are looked for. Until then one bucket does.
  const size_t first_cap = c10d::kDefaultFirstBucketBytes;
  const bool rebuilds = options.static_graph || !options.find_unused_parameters;
  const std::vector<size_t> limits = rebuilds
                                         ? std::vector<size_t>{std::numeric_limits<size_t>::max()}
                                         : std::vector<size_t>{first_cap, options.bucket_bytes_cap};
  auto assignment = c10d::compute_bucket_assignment_by_size(parameters, limits, sparse);
  // Gradients become ready from the last layer to the first.
  std::vector<std::vector<size_t>> buckets(std::get<0>(assignment).rbegin(),
                                           std::get<0>(assignment).rend());
  std::unordered_map<size_t, std::string> names_by_index;
  for (size_t index = 0; index < names.size(); ++index) names_by_index[index] = names[index];

  auto reducer = std::make_shared<GradientReducer>(
      std::move(parameters), std::move(buckets), std::move(group), std::move(sparse),
      static_cast<int64_t>(options.bucket_bytes_cap), options.find_unused_parameters,
      options.gradient_as_bucket_view, std::move(names_by_index), static_cast<int64_t>(first_cap),
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11
      ,
      /*bucket_bytes_cap_list=*/std::vector<int64_t>{}
#endif
  );
  if (options.static_graph) {
    reducer->set_static_graph();
    reducer->watch_first_pass();
  }
  // Without a logger the reducer follows a null pointer when the set of unused parameters changes.
  auto logger = std::make_shared<c10d::Logger>(reducer);
  reducer->set_logger(logger);
  return {std::move(reducer), std::move(logger)};
}

}  // namespace accelerate::compat

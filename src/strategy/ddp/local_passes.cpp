#include "strategy/ddp/local_passes.h"

#include <ATen/ops/stack.h>

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "strategy/ddp/replica_digest.h"

namespace accelerate {
namespace {

constexpr const char* kLocalPassHint =
    "call accelerator.backward(loss) instead of loss.backward() and step the prepared optimizer; "
    "for a pass that is meant to stay on this rank, hold accelerator.no_sync(model)";

}  // namespace

void LocalPasses::note_gradient(size_t index) {
  const std::lock_guard lock(noted_mutex_);
  if (noted_.count(index) == 0) noted_[index] = sum_of_bits(parameters_.tensors[index]);
}

std::optional<size_t> LocalPasses::changed_parameter() const {
  const std::lock_guard lock(noted_mutex_);
  std::vector<size_t> indices;
  std::vector<at::Tensor> before, now;
  for (const auto& [index, bits] : noted_) {
    if (!bits.defined()) continue;
    const at::Device device = indices.empty() ? bits.device() : before[0].device();
    indices.push_back(index);
    before.push_back(bits.to(device));
    now.push_back(sum_of_bits(parameters_.tensors[index]).to(device));
  }
  if (indices.empty()) return std::nullopt;
  const at::Tensor changed = at::stack(before).ne(at::stack(now)).nonzero().cpu();
  if (changed.numel() == 0) return std::nullopt;
  return indices[static_cast<size_t>(changed[0][0].item<int64_t>())];
}

void LocalPasses::forget() {
  reducer_->set_holds_unreduced_gradients(false);
  are_meant_ = false;
  const std::lock_guard lock(noted_mutex_);
  noted_.clear();
}

void LocalPasses::accept() {
  if (!any()) return;
  forget();
  reducer_->set_holds_unreduced_gradients(true);
  are_meant_ = true;
}

std::optional<ErrorInfo> LocalPasses::drop_gradients(const std::vector<at::Tensor>& dropped) {
  if (!any()) return std::nullopt;
  std::unordered_set<const void*> gone;
  for (const at::Tensor& parameter : dropped) gone.insert(parameter.unsafeGetTensorImpl());
  const auto is_dropped = [&](const at::Tensor& own) {
    return gone.count(own.unsafeGetTensorImpl()) != 0;
  };
  if (std::ranges::none_of(parameters_.tensors, is_dropped)) return std::nullopt;
  const auto changed = changed_parameter();
  // Another optimizer may still hold gradients of this rank alone.
  const bool none_is_left = std::ranges::all_of(parameters_.tensors, [&](const at::Tensor& own) {
    return !own.grad().defined() || is_dropped(own);
  });
  if (changed || none_is_left) forget();
  if (!changed) return std::nullopt;
  return step_error(*changed, "zero_grad()");
}

ErrorInfo LocalPasses::pass_error(const char* where) {
  return {.what =
              "a backward pass bypassed accelerator.backward(loss): its gradients are those "
              "of this rank alone, and updating with them would make the ranks diverge",
          .where = where,
          .hint = kLocalPassHint};
}

ErrorInfo LocalPasses::step_error(size_t index, const char* where) const {
  return {.what = "parameter '" + parameters_.names[index] +
                  "' was changed while it held a gradient of this rank alone, which did not go "
                  "through accelerator.backward(loss): the ranks train apart",
          .where = where,
          .hint = kLocalPassHint};
}

}  // namespace accelerate

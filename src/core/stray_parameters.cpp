#include "core/stray_parameters.h"

#include <ATen/ATen.h>

#include <sstream>
#include <unordered_set>

#include "accelerate/log.h"
#include "compat/graph_leaves.h"

namespace accelerate {
namespace {

std::string stray_text(size_t count, const at::Tensor& example) {
  std::ostringstream text;
  text << "losses have gradients for "
       << (count == 1 ? "a tensor" : std::to_string(count) + " tensors")
       << " that no prepared model or optimizer holds and whose values change (the first has the "
          "shape "
       << example.sizes()
       << "); if these are parameters, their gradients are not averaged over the ranks, each of "
          "which then trains a different model: give the model and its optimizer to prepare()";
  return text.str();
}

}  // namespace

void StrayParameters::look(const at::Tensor& loss, const std::vector<at::Tensor>& held) {
  if (is_done()) return;
  --looks_left_;
  std::unordered_set<const void*> identities;
  for (const at::Tensor& parameter : held) identities.insert(parameter.unsafeGetTensorImpl());
  size_t count = 0;
  at::Tensor first_changed;
  for (const at::Tensor& leaf : compat::leaves_of(loss)) {
    if (identities.contains(leaf.unsafeGetTensorImpl())) continue;
    if (!leaf.is_floating_point() || leaf.layout() != at::kStrided) continue;
    ++count;
    const double sum = leaf.detach().sum(at::kDouble).item<double>();
    const auto known = known_.find(leaf.unsafeGetTensorImpl());
    // A tensor that is gone was not seen with its values.
    const bool was_seen = known != known_.end() && !known->second.tensor.expired();
    const double before = was_seen ? known->second.sum : sum;
    if (before < sum || sum < before) first_changed = leaf;
    known_.insert_or_assign(
        leaf.unsafeGetTensorImpl(),
        Known{.tensor = c10::weak_intrusive_ptr<c10::TensorImpl>(leaf.getIntrusivePtr()),
              .sum = sum});
  }
  if (is_done()) known_.clear();
  if (!first_changed.defined()) return;
  looks_left_ = 0;
  known_.clear();
  log(LogLevel::kWarning, stray_text(count, first_changed));
}

}  // namespace accelerate

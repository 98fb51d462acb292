#include "core/configured/configured_clipping.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "config/sharding/given_values.h"

namespace accelerate {
namespace {

std::string norm_text(double norm) {
  std::ostringstream text;
  text << norm;
  return text.str();
}

}  // namespace

ConfiguredClipping::ConfiguredClipping(double max_norm, bool is_auto, std::string place,
                                       std::shared_ptr<Strategy> strategy)
    : max_norm_(max_norm),
      is_auto_(is_auto),
      place_(std::move(place)),
      strategy_(std::move(strategy)) {}

void ConfiguredClipping::check(double max_norm, const ClipNormOptions& options) const {
  if (is_auto_ || (max_norm == max_norm_ && options.norm_type == 2)) return;
  config::refuse_contradiction(
      "the program clips gradients to a norm of " + norm_text(max_norm) +
          (options.norm_type == 2 ? "" : ", of type " + norm_text(options.norm_type)) +
          ", and the configuration says " + norm_text(max_norm_),
      "clip_grad_norm_", place_,
      "leave the call out: the configuration has them clipped before each update");
}

void ConfiguredClipping::note(at::TensorList parameters) {
  for (const at::Tensor& parameter : parameters) clipped_.insert(parameter.unsafeGetTensorImpl());
}

void ConfiguredClipping::forget(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) clipped_.erase(parameter.unsafeGetTensorImpl());
}

void ConfiguredClipping::clip(const std::vector<at::Tensor>& parameters) {
  bool is_done = !clipped_.empty();
  for (const at::Tensor& parameter : parameters) {
    const bool was_clipped = clipped_.erase(parameter.unsafeGetTensorImpl()) > 0;
    is_done = is_done && (was_clipped || !parameter.requires_grad());
  }
  if (!is_done) strategy_->clip_grad_norm_(parameters, max_norm_, {});
}

}  // namespace accelerate

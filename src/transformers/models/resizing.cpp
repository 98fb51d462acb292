// PretrainedModel::resize_token_embeddings().
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/transformers/model.h"

namespace accelerate::transformers {
namespace {

constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();
// Of the covariance of the old rows, and of the deviation of old biases.
constexpr double kSpread = 1e-9;
// Random numbers at once: one for each old row.
constexpr int64_t kRowsAtOnce = 64;

int64_t checked_count(int64_t count, int64_t multiple) {
  if (count < 1 || count > kMostTokens) {
    throw UsageError({.what = "a vocabulary cannot have " + std::to_string(count) + " tokens",
                      .where = "resize_token_embeddings()",
                      .hint = "give the number of tokens of the tokenizer"});
  }
  if (multiple < 0 || multiple > kMostTokens) {
    throw UsageError(
        {.what = "pad_to_multiple_of is " + std::to_string(multiple) + "; it should be 0 or more",
         .where = "resize_token_embeddings()"});
  }
  if (multiple == 0) return count;
  const int64_t padded = (count + multiple - 1) / multiple * multiple;
  return checked_count(padded, 0);
}

// Of a normal distribution with the mean of the old rows and kSpread times their covariance: sums
// of the old rows with random weights have just that.
void fill_around_mean(at::Tensor fresh, const at::Tensor& old) {
  const at::Tensor known = old.to(at::kFloat);
  const at::Tensor mean = known.mean(0);
  if (old.dim() < 2) {
    const double deviation = old.size(0) > 1 ? known.std().item<double>() : 0.0;
    fresh.copy_(at::randn(fresh.sizes(), known.options()).mul_(kSpread * deviation).add_(mean));
    return;
  }
  const auto count = static_cast<double>(old.size(0));
  const at::Tensor apart = (known - mean).mul_(std::sqrt(kSpread / count));
  for (int64_t first = 0; first < fresh.size(0); first += kRowsAtOnce) {
    at::Tensor part = fresh.slice(0, first, std::min(fresh.size(0), first + kRowsAtOnce));
    const at::Tensor weights = at::randn({part.size(0), old.size(0)}, known.options());
    part.copy_(weights.matmul(apart) + mean);
  }
}

// Whether a matrix of `names` is the one of the head too.
bool head_is_tied(const PretrainedModel& model, const std::vector<std::string>& names) {
  const auto parameters = model.named_parameters();
  return std::ranges::any_of(model.tied_weights(), [&](const auto& pair) {
    return std::ranges::count(names, pair.second) > 0 && parameters[pair.second].dim() == 2;
  });
}

}  // namespace

int64_t PretrainedModel::resize_token_embeddings(int64_t count, const ResizeOptions& options) {
  const int64_t wanted = checked_count(count, options.pad_to_multiple_of);
  const std::vector<std::string> names = token_parameters();
  if (names.empty()) {
    throw UsageError({.what = architecture() + " does not say which parameters have a row for each "
                                               "token",
                      .where = "resize_token_embeddings()",
                      .hint = "override token_parameters()"});
  }
  const at::NoGradGuard no_gradient;
  const bool tied = head_is_tied(*this, names);
  const auto parameters = named_parameters();
  for (const std::string& name : names) {
    const at::Tensor& parameter = parameters[name];
    const int64_t kept = std::min(parameter.size(0), wanted);
    if (parameter.size(0) == wanted) continue;
    std::vector<int64_t> shape = parameter.sizes().vec();
    shape.front() = wanted;
    at::Tensor resized = at::empty(shape, parameter.options().requires_grad(false));
    const at::Tensor old = parameter.detach();
    if (wanted > kept && options.mean_resizing && (old.dim() > 1 || !tied)) {
      fill_around_mean(resized.slice(0, kept), old);
    } else if (wanted > kept) {
      initialise(name, resized);
    }
    resized.slice(0, 0, kept).copy_(old.slice(0, 0, kept));
    parameter.mutable_grad().reset();
    parameter.set_data(resized);
  }
  config_.set("vocab_size", wanted);
  return wanted;
}

}  // namespace accelerate::transformers

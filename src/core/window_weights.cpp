#include "core/window_weights.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <string>

#include "accelerate/communicator.h"
#include "accelerate/errors.h"

namespace accelerate {
namespace {

// Not by a reduction: where another rank has no weight, and so reduces gradients at this moment,
// the two would be taken for one, and Gloo ends a process that is sent more bytes than it waits
// for. Gathering and reducing wait for each other until the time-out, which says who does what.
double sum_over(Communicator& ranks, double own) {
  double sum = 0;
  for (const at::Tensor& weight : ranks.all_gather(at::scalar_tensor(own, at::kDouble))) {
    sum += weight.item<double>();
  }
  return sum;
}

constexpr const char* kWeightHint = "give the number of tokens that the loss averages over";

double power_of_two_near(double positive) { return std::exp2(std::round(std::log2(positive))); }

}  // namespace

void WindowWeights::begin_window() { state_ = {.unit = state_.unit}; }

void WindowWeights::add(std::optional<double> weight, bool last) {
  if (state_.losses > 0 && state_.weighted != weight.has_value()) {
    throw UsageError({.what = "losses with and without a weight in one window",
                      .where = "backward",
                      .hint = "give all losses of a window a weight, or none"});
  }
  // The first one has divided the gradients already, where the window ends.
  if (weight && state_.weighted_in_micro_batch) {
    throw UsageError({.what = "a second loss with a weight in one micro-batch",
                      .where = "backward",
                      .hint = "combine the losses into one"});
  }
  const bool usable = !weight || (std::isfinite(*weight) && *weight >= 0);
  if (!usable && !last) {
    throw UsageError(
        {.what = "the weight of a loss must be 0 or more, got " + std::to_string(*weight),
         .where = "backward",
         .hint = kWeightHint});
  }
  state_.weighted = weight.has_value();
  state_.weighted_in_micro_batch = state_.weighted;
  state_.sum += usable ? weight.value_or(0) : std::numeric_limits<double>::quiet_NaN();
  ++state_.losses;
}

double WindowWeights::mean_over(Communicator& ranks) {
  const double total = sum_over(ranks, state_.sum);
  if (!std::isfinite(total)) {
    throw UsageError({.what = std::string("the weight of a loss must be 0 or more; that of ") +
                              (std::isfinite(state_.sum) ? "another rank" : "this rank") +
                              " is not",
                      .where = "backward",
                      .hint = kWeightHint});
  }
  if (total <= 0) {
    throw UsageError({.what = "all losses of a window have the weight 0, on all ranks",
                      .where = "backward",
                      .hint = "leave out batches without anything to learn from"});
  }
  const double mean = total / ranks.world_size();
  state_.unit = power_of_two_near(mean);
  return mean;
}

double WindowWeights::unit(Communicator& ranks) {
  if (state_.unit == 0) {
    const double total = sum_over(ranks, state_.sum);
    state_.unit =
        std::isfinite(total) && total > 0 ? power_of_two_near(total / ranks.world_size()) : 1;
  }
  return state_.unit;
}

}  // namespace accelerate

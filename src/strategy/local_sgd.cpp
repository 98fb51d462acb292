#include "accelerate/local_sgd.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <exception>
#include <map>
#include <string>
#include <utility>

#include "accelerate/communicator.h"
#include "accelerate/detail/stamped.h"
#include "accelerate/log.h"

namespace accelerate {

LocalSgd::LocalSgd(Communicator& communicator, std::vector<at::Tensor> parameters,
                   std::shared_ptr<ModelStrategy> strategy, const LocalSgdOptions& options)
    : communicator_(communicator),
      parameters_(std::move(parameters)),
      strategy_(std::move(strategy)),
      options_(options),
      active_(options.enabled && communicator.world_size() > 1),
      exceptions_at_begin_(std::uncaught_exceptions()) {
  if (options.local_sgd_steps < 1) {
    detail::throw_usage_error(
        communicator, {.what = "local_sgd_steps must be 1 or more, not " +
                               std::to_string(options.local_sgd_steps),
                       .where = "LocalSgdOptions",
                       .hint = "the number of optimizer steps from one average to the next"});
  }
  if (!active_ || !strategy_) return;
  detail::stamped(communicator, [&] { strategy_->require_whole("LocalSgd"); });
  gradient_sync_before_ = strategy_->gradient_sync();
  strategy_->set_gradient_sync(GradientSync::kLocal);
}

LocalSgd::~LocalSgd() {
  try {
    if (std::uncaught_exceptions() <= exceptions_at_begin_) finish();
    restore_gradient_sync();
  } catch (const std::exception& error) {
    restore_gradient_sync();
    log(LogLevel::kError,
        std::string("parameters were not averaged at the end of LocalSgd: ") + error.what());
  }
}

void LocalSgd::step() {
  if (!active_) return;
  if (++steps_ % options_.local_sgd_steps == 0) average_parameters();
}

void LocalSgd::finish() {
  if (!active_) return;
  average_parameters();
  restore_gradient_sync();
}

void LocalSgd::restore_gradient_sync() {
  if (!std::exchange(active_, false) || !strategy_) return;
  strategy_->set_gradient_sync(gradient_sync_before_);
}

void LocalSgd::average_parameters() {
  const at::NoGradGuard no_grad;
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const at::Tensor& parameter : parameters_) {
    const at::Tensor exact = strategy_ ? strategy_->master_of(parameter) : parameter;
    by_type[exact.scalar_type()].push_back(exact);
  }
  for (auto& [type, parameters] : by_type) {
    std::vector<at::Tensor> rows;
    rows.reserve(parameters.size());
    for (const at::Tensor& parameter : parameters) rows.push_back(parameter.reshape({-1}));
    at::Tensor all = at::cat(rows);
    communicator_.all_reduce(all, ReduceOp::kMean);
    int64_t offset = 0;
    for (at::Tensor& parameter : parameters) {
      parameter.copy_(all.narrow(0, offset, parameter.numel()).view_as(parameter));
      offset += parameter.numel();
    }
  }
  if (strategy_) strategy_->masters_changed();
}

}  // namespace accelerate

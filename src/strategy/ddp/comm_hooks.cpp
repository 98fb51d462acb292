#include "strategy/ddp/comm_hooks.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "strategy/ddp/bucket_mean.h"
#include "strategy/ddp/power_sgd.h"

namespace accelerate {
namespace {

// In the order of the enumerators.
constexpr std::array<std::string_view, 5> kNames{"no", "fp16", "bf16", "power_sgd",
                                                 "batched_power_sgd"};

[[noreturn]] void refuse(std::string what, std::string hint) {
  throw UsageError({.what = std::move(what), .where = "CommHookOptions", .hint = std::move(hint)});
}

class MeanHook final : public c10d::CommHookInterface {
 public:
  explicit MeanHook(c10::intrusive_ptr<c10d::ProcessGroup> group) : group_(std::move(group)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    const at::NoGradGuard no_grad;
    return average_bucket(group_, bucket);
  }
  at::Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result);
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

// Hands a copy of the bucket in `dtype` to another hook and brings back what comes out of it.
class CastHook final : public c10d::CommHookInterface {
 public:
  CastHook(std::unique_ptr<c10d::CommHookInterface> inner, at::ScalarType dtype)
      : inner_(std::move(inner)), dtype_(dtype) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    const at::NoGradGuard no_grad;
    if (bucket.getBuffer().is_sparse()) return inner_->runHook(bucket);
    at::Tensor original = bucket.getBuffer();
    at::Tensor cast = original.to(dtype_);
    bucket.setBuffer(cast);
    // Neither `this` nor the inner hook: where a pass is refused while buckets are under way, the
    // reducer and its hooks may be gone before they arrive; and the inner one keeps the group,
    // whose destructor joins the very thread that this may run on.
    return inner_->runHook(bucket)->then(
        [original](c10::ivalue::Future& done) -> c10::IValue {
          const at::NoGradGuard in_callback;
          original.copy_(c10d::detail::parseCppCommHookResult(done.value()));
          return original;
        },
        c10::TensorType::get());
  }
  at::Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result);
  }

 private:
  std::unique_ptr<c10d::CommHookInterface> inner_;
  at::ScalarType dtype_;
};

using HookPointer = std::unique_ptr<c10d::CommHookInterface>;

HookPointer cast_to(CommHook type, HookPointer hook) {
  if (type == CommHook::kFp16) return std::make_unique<CastHook>(std::move(hook), at::kHalf);
  if (type == CommHook::kBf16) return std::make_unique<CastHook>(std::move(hook), at::kBFloat16);
  return hook;
}

// `with_memory` becomes the part of the hook that keeps something from pass to pass.
HookPointer make_hook(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                      const CommHookOptions& options, PowerSgdHook*& with_memory) {
  using Shape = PowerSgdHook::Shape;
  const auto power_sgd = [&](Shape shape) {
    auto hook = std::make_unique<PowerSgdHook>(group, options.power_sgd, shape);
    with_memory = hook.get();
    return cast_to(options.wrapper, std::move(hook));
  };
  switch (options.hook.value()) {
    case CommHook::kNo:
      return nullptr;
    case CommHook::kFp16:
    case CommHook::kBf16:
      return cast_to(options.hook, std::make_unique<MeanHook>(group));
    case CommHook::kPowerSgd:
      return power_sgd(Shape::kGradients);
    case CommHook::kBatchedPowerSgd:
      return power_sgd(Shape::kSquare);
  }
  return nullptr;
}

}  // namespace

CommHook::CommHook(std::string_view name) : value_(kNo) {
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) {
    throw UsageError({.what = "unknown communication hook '" + std::string(name) + "'",
                      .where = "comm_hook",
                      .hint = "one of no, fp16, bf16, power_sgd, batched_power_sgd"});
  }
  value_ = static_cast<Value>(found - kNames.begin());
}

std::string_view CommHook::name() const { return kNames[value_]; }

void require_usable(const CommHookOptions& options) {
  const bool power_sgd =
      options.hook == CommHook::kPowerSgd || options.hook == CommHook::kBatchedPowerSgd;
  if (options.wrapper == CommHook::kPowerSgd || options.wrapper == CommHook::kBatchedPowerSgd) {
    refuse("PowerSGD cannot be a wrapper", "make it the hook");
  }
  if (options.wrapper != CommHook::kNo && !power_sgd) {
    refuse("a wrapper goes around PowerSGD alone, not around '" + std::string(options.hook.name()) +
               "'",
           "leave the wrapper out");
  }
  if (!power_sgd) return;
  const PowerSgdOptions& power = options.power_sgd;
  if (power.matrix_approximation_rank < 1) {
    refuse("matrix_approximation_rank must be 1 or more", "leave it out for the default of 1");
  }
  if ((power.use_error_feedback || power.warm_start) && power.start_power_sgd_iter <= 1) {
    refuse("start_power_sgd_iter must be more than 1 with error feedback or warm start",
           "buckets are rebuilt after the first backward pass: start after it");
  }
  if (!(power.min_compression_rate > 0)) {
    refuse("min_compression_rate must be positive", "leave it out for the default of 2");
  }
  if (!(power.orthogonalization_epsilon >= 0)) {
    refuse("orthogonalization_epsilon must not be negative", "leave it out for the default of 0");
  }
}

PowerSgdHook* register_comm_hook(compat::GradientReducer& reducer,
                                 const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                 const CommHookOptions& options) {
  require_usable(options);
  PowerSgdHook* with_memory = nullptr;
  if (auto hook = make_hook(group, options, with_memory)) {
    reducer.register_comm_hook(std::move(hook));
  }
  return with_memory;
}

}  // namespace accelerate

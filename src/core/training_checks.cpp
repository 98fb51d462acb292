#include "core/training_checks.h"

#include "comm/groups/process_group.h"

namespace accelerate {
namespace {

constexpr const char* kOwnStep = "step() was called on the optimizer given to prepare()";
constexpr const char* kOwnerlessStep =
    "an optimizer that was not given to prepare() has updated a prepared model";

}  // namespace

void TrainingChecks::require_sound(const char* where) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!broken_) return;
  ErrorInfo info = *broken_;
  info.where = where;
  throw UsageError(std::move(info));
}

void TrainingChecks::require_ranks() const {
  if (const auto ranks = ranks_.lock()) comm::require_usable(*ranks);
}

void TrainingChecks::set_broken(std::optional<ErrorInfo> broken) {
  const std::lock_guard<std::mutex> lock(mutex_);
  broken_ = std::move(broken);
}

void TrainingChecks::refuse(const std::string& what, GradientStage stage, const char* where) {
  const bool is_own = what == kOwnStep;
  own_steps_.forget_all();
  ownerless_steps_.forget_all();
  ErrorInfo info{
      .what = what + " while its gradients were still " +
              (stage == GradientStage::kScaled ? "multiplied by the scale of the loss"
                                               : "being accumulated"),
      .hint = std::string(is_own ? "call" : "give the optimizer to prepare() and call") +
              " step() of what prepare() returned; the parameters have moved, so load a checkpoint "
              "or begin again"};
  set_broken(info);
  info.where = where;
  throw UsageError(std::move(info));
}

void TrainingChecks::drop_expired() {
  const auto optimizers = optimizers_.lock();
  if (!optimizers) return own_steps_.forget_all();  // the accelerator is gone
  optimizers->drop_expired();
}

void TrainingChecks::before_call(const char* where) {
  require_ranks();
  require_sound(where);
  drop_expired();
  if (own_steps_.empty()) return;
  if (const auto stage = own_steps_.look()) refuse(kOwnStep, *stage, where);
}

void TrainingChecks::compare(const char* where, OwnSteps::Wait wait) {
  require_ranks();
  require_sound(where);
  drop_expired();
  if (!own_steps_.empty()) {
    if (const auto stage = own_steps_.compare(wait)) refuse(kOwnStep, *stage, where);
  }
  if (const auto stage = ownerless_steps_.compare(wait)) refuse(kOwnerlessStep, *stage, where);
}

void TrainingChecks::before_gradient_call(const char* where) {
  compare(where, OwnSteps::Wait::kNone);
}
void TrainingChecks::before_backward(const char* where) {
  compare(where, OwnSteps::Wait::kEarlierPasses);
}
void TrainingChecks::before_save(const char* where) { compare(where, OwnSteps::Wait::kAll); }

void TrainingChecks::before_batch(const char* where) {
  if (own_steps_.is_of_this_thread()) return before_call(where);
  require_sound(where);
}

void TrainingChecks::at_end_of_pass(const char* where) {
  if (own_steps_.is_of_this_thread()) return before_save(where);
  require_sound(where);
}

void TrainingChecks::set_loading(const std::string& directory) {
  set_broken(ErrorInfo{.what = "load_state() failed halfway: some objects have the state of " +
                               directory + ", others do not",
                       .hint = "load a checkpoint again, or end the program"});
}

void TrainingChecks::set_loaded() {
  set_broken(std::nullopt);
  own_steps_.forget_all();
  ownerless_steps_.forget_all();
}

void TrainingChecks::reset() { set_loaded(); }

}  // namespace accelerate

#include "core/training_checks.h"

#include "accelerate/errors.h"

namespace accelerate {

void TrainingChecks::require_whole(const char* where) const {
  if (half_loaded_.empty()) return;
  throw UsageError({.what = "load_state() failed halfway: some objects have the state of " +
                            half_loaded_ + ", others do not",
                    .where = where,
                    .hint = "load a checkpoint again, or end the program"});
}

void TrainingChecks::drop_expired() {
  const auto optimizers = optimizers_.lock();
  if (!optimizers) return own_steps_.forget_all();  // the accelerator is gone
  (void)optimizers->live();
}

void TrainingChecks::before_call(const char* where) {
  require_whole(where);
  if (own_steps_.empty()) return;
  drop_expired();
  own_steps_.look(where);
}

void TrainingChecks::before_update(const char* where) {
  require_whole(where);
  if (own_steps_.empty()) return;
  drop_expired();
  own_steps_.compare(where);
}

void TrainingChecks::before_save(const char* where) {
  require_whole(where);
  if (own_steps_.empty()) return;
  drop_expired();
  own_steps_.compare_and_wait(where);
}

void TrainingChecks::before_batch(const char* where) {
  if (own_steps_.is_of_this_thread()) return before_call(where);
  require_whole(where);
}

void TrainingChecks::at_end_of_pass(const char* where) {
  if (own_steps_.is_of_this_thread()) return before_save(where);
  require_whole(where);
}

void TrainingChecks::set_loaded() {
  half_loaded_.clear();
  own_steps_.forget_all();
}

void TrainingChecks::reset() { set_loaded(); }

}  // namespace accelerate

// What prepared objects ask before they do anything.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "accelerate/communicator.h"
#include "accelerate/errors.h"
#include "core/own_steps.h"
#include "core/ownerless_steps.h"
#include "core/prepared_optimizers.h"

namespace accelerate {

// Refuses to go on from a state that cannot be trained: parameters that were updated behind the
// library's back, or a checkpoint that was loaded by half. Once it has refused, it does so until a
// load succeeds. One thread at a time, but for before_batch() and at_end_of_pass(), which any
// thread may call at any time.
class TrainingChecks {
 public:
  // Calls begin with `optimizers` dropping those that nobody holds any more: neither notes about
  // them are read, nor does the strategy ask them anything. What it drops must be forgotten in
  // own_steps().
  void set_optimizers(std::weak_ptr<PreparedOptimizers> optimizers) {
    optimizers_ = std::move(optimizers);
  }

  // Calls throw CommError once the group has failed: work that was queued behind an exchange which
  // was aborted has run on values that mean nothing.
  void set_ranks(std::weak_ptr<Communicator> ranks) { ranks_ = std::move(ranks); }

  // These throw UsageError; `where` is what the user called. See OwnSteps for what each compares.
  void before_call(const char* where);
  // A call that uses, changes or drops gradients. Waits for no device.
  void before_gradient_call(const char* where);
  // Waits for a device that is more than a pass behind.
  void before_backward(const char* where);
  // Waits for what a device has not told yet.
  void before_save(const char* where);
  // By the thread of a loop over a loader, which may be another than that of the training.
  void before_batch(const char* where);
  void at_end_of_pass(const char* where);

  OwnSteps& own_steps() { return own_steps_; }
  OwnerlessSteps& ownerless_steps() { return ownerless_steps_; }

  // From here on all of the above throw, until set_loaded(): `directory` replaces what is trained.
  void set_loading(const std::string& directory);
  void set_loaded();
  // All that was prepared is gone.
  void reset();

 private:
  void require_sound(const char* where) const;
  void require_ranks() const;
  void compare(const char* where, OwnSteps::Wait wait);
  void drop_expired();
  void set_broken(std::optional<ErrorInfo> broken);
  // `what` has used gradients of that stage.
  [[noreturn]] void refuse(const std::string& what, GradientStage stage, const char* where);

  OwnSteps own_steps_;
  OwnerlessSteps ownerless_steps_;
  std::weak_ptr<PreparedOptimizers> optimizers_;
  std::weak_ptr<Communicator> ranks_;
  mutable std::mutex mutex_;         // of what follows
  std::optional<ErrorInfo> broken_;  // why nothing may go on; without a place
};

}  // namespace accelerate

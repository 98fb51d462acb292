// What prepared objects ask before they do anything.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "core/own_steps.h"
#include "core/prepared_optimizers.h"

namespace accelerate {

// Refuses to go on from a state that cannot be trained: parameters that were updated behind the
// library's back, or a checkpoint that was loaded by half. One thread at a time.
class TrainingChecks {
 public:
  // Before a note about an optimizer is read, `optimizers` drops those that are gone; what it drops
  // must be forgotten in own_steps().
  void set_optimizers(std::weak_ptr<PreparedOptimizers> optimizers) {
    optimizers_ = std::move(optimizers);
  }

  // These throw UsageError; `where` is what the user called. See OwnSteps for what each compares.
  void before_call(const char* where);
  void before_update(const char* where);
  void before_save(const char* where);
  // By the thread of a loop over a loader, which may be another than that of the training.
  void before_batch(const char* where);
  void at_end_of_pass(const char* where);

  OwnSteps& own_steps() { return own_steps_; }

  // From here on all of the above throw, until set_loaded(): `directory` replaces what is trained.
  void set_loading(std::string directory) { half_loaded_ = std::move(directory); }
  void set_loaded();
  // All that was prepared is gone.
  void reset();

 private:
  void require_whole(const char* where) const;
  void drop_expired();

  OwnSteps own_steps_;
  std::weak_ptr<PreparedOptimizers> optimizers_;
  std::string half_loaded_;  // the directory; empty where nothing is wrong
};

}  // namespace accelerate

// What the host has to do again each time a recorded step is replayed. Code that runs inside of a
// recording and depends on values of the host asks current() and leaves its action there.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace accelerate::compat {

class ReplayActions {
 public:
  // Those of the recording that this thread is in, or null.
  static ReplayActions* current();

  // Runs before each replay, in the order of the calls.
  void add(std::function<void()> action) { before_.push_back(std::move(action)); }
  // Runs after each replay was queued.
  void add_after(std::function<void()> action) { after_.push_back(std::move(action)); }
  void run_before() const {
    for (const auto& action : before_) action();
  }
  void run_after() const {
    for (const auto& action : after_) action();
  }

  // While it lives, current() of this thread is `actions`. Not nested.
  class Scope {
   public:
    explicit Scope(ReplayActions& actions);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

 private:
  std::vector<std::function<void()>> before_;
  std::vector<std::function<void()>> after_;
};

// While one lives on this thread, zero_grad() of prepared optimizers sets gradients to zero where
// it would let go of them: graphs remember where gradients are.
class KeptGradients {
 public:
  KeptGradients();
  ~KeptGradients();
  KeptGradients(const KeptGradients&) = delete;
  KeptGradients& operator=(const KeptGradients&) = delete;
  static bool active();
};

}  // namespace accelerate::compat

// What the host has to do again each time a recorded step is replayed. Code that runs inside of a
// recording and depends on values of the host asks current() and leaves its action there.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace accelerate::device {

class ReplayActions {
 public:
  // Those of the recording that this thread is in, or null.
  static ReplayActions* current();

  // Runs before each replay, in the order of the calls.
  void add(std::function<void()> action) { before_.push_back(std::move(action)); }
  // Runs after each replay was queued.
  void add_after(std::function<void()> action) { after_.push_back(std::move(action)); }
  // What the recording takes for granted: memory that it reads, numbers that became part of it.
  // Asked before each replay, before all else; where it is false the recording is of no use any
  // more.
  void add_check(std::function<bool()> check) { checks_.push_back(std::move(check)); }
  bool holds() const {
    return std::ranges::all_of(checks_, [](const auto& check) { return check(); });
  }
  // Keeps what the recording reads alive as long as the recording.
  void keep(at::Tensor tensor) { kept_.push_back(std::move(tensor)); }
  // The gradients as the recording finds them. Given where each step starts from none, so that
  // zero_grad() may let go of what nothing was added to yet: the graph then writes its gradients
  // where it would add to old ones.
  void mark_gradients(const std::vector<std::pair<at::Tensor, at::Tensor>>& of_parameters);
  bool untouched(const at::Tensor& gradient) const;
  // The recording drops the gradient of `parameter` or adds to it: whether it has one from there on
  // does not depend on what was before. Others are carried into the recording.
  void note_decided(const at::Tensor& parameter) {
    decided_.insert(parameter.unsafeGetTensorImpl());
  }
  bool decides(const at::Tensor& parameter) const {
    return decided_.contains(parameter.unsafeGetTensorImpl());
  }

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
  std::vector<std::function<bool()>> checks_;
  std::vector<at::Tensor> kept_;
  std::unordered_map<const void*, int64_t> versions_;  // of marked gradients
  std::unordered_set<const void*> decided_;            // parameters
};

// While one lives on this thread, zero_grad() of prepared optimizers sets gradients to zero where
// it would let go of them: graphs remember where gradients are. But for ReplayActions::untouched().
class KeptGradients {
 public:
  KeptGradients();
  ~KeptGradients();
  KeptGradients(const KeptGradients&) = delete;
  KeptGradients& operator=(const KeptGradients&) = delete;
  static bool active();
};

}  // namespace accelerate::device

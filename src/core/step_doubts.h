// What steps outside of the library are looked for with.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <unordered_set>
#include <vector>

#include "device/host_copy.h"

namespace accelerate {

// Why no step may use gradients yet.
enum class GradientStage { kScaled, kAccumulating };

// Comparisons that a device makes: each tells, when the device has come to it, whether a step has
// used gradients of some stage. One thread at a time.
class StepDoubts {
 public:
  // Which of them to read. Waits for those that the device has not made yet.
  enum class Wait {
    kNone,
    kEarlierPasses,  // those from before the latest pass: the device has long made them, unless it
                     // is more than a pass behind
    kAll
  };

  // `is_step` is a float32 scalar, not 0 if there was a step. `pass` counts backward passes.
  void add(const at::Tensor& is_step, GradientStage stage, int64_t pass) {
    doubts_.push_back({.is_step = device::HostCopy(is_step), .stage = stage, .pass = pass});
  }
  // Takes out those that are to be read, where `pass` is the latest. Returns the stage of the first
  // one that has found a step.
  std::optional<GradientStage> read(Wait wait, int64_t pass) {
    std::optional<GradientStage> found;
    std::erase_if(doubts_, [&](const Doubt& doubt) {
      const bool waits = wait == Wait::kAll || (wait == Wait::kEarlierPasses && doubt.pass < pass);
      if (!waits) return false;
      if (!found && doubt.is_step.value() != 0) found = doubt.stage;
      return true;
    });
    return found;
  }
  bool empty() const { return doubts_.empty(); }
  void clear() { doubts_.clear(); }

 private:
  struct Doubt {
    device::HostCopy is_step;
    GradientStage stage;
    int64_t pass;
  };

  std::vector<Doubt> doubts_;
};

// Drops the notes about `parameters`.
template <class Note>
void forget_notes(std::vector<Note>& notes, const std::vector<at::Tensor>& parameters) {
  if (notes.empty()) return;
  std::unordered_set<const void*> dropped;
  for (const at::Tensor& parameter : parameters) dropped.insert(parameter.unsafeGetTensorImpl());
  std::erase_if(notes, [&](const Note& note) {
    return dropped.contains(note.parameter.unsafeGetTensorImpl());
  });
}

}  // namespace accelerate

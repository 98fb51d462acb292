// Which values of an earlier try of a run must go when the run is continued.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace accelerate::tracking {

// Of each name, the first step that is to go.
using StepCuts = std::vector<std::pair<std::string, int64_t>>;

// A run that is loaded from a checkpoint goes on at an earlier step than the one it had come to.
// Of each name, the first step that is logged afterwards says from where on older values are of a
// past that did not happen. Names are looked at one by one: some count steps, some epochs.
class StepCutter {
 public:
  // From now on a first step is looked for.
  void begin() {
    active_ = true;
    seen_.clear();
  }
  bool active() const { return active_; }
  // A value of `name` is about to be written. Values without a step take nothing away.
  void note(std::string_view name, const std::optional<int64_t>& step) {
    if (!active_ || !step || seen_.find(name) != seen_.end()) return;
    seen_.emplace(name);
    cuts_.emplace_back(name, *step);
  }
  // What has not been taken away yet.
  const StepCuts& pending() const { return cuts_; }
  void set_done() { cuts_.clear(); }

 private:
  bool active_ = false;
  std::set<std::string, std::less<>> seen_;
  StepCuts cuts_;
};

// The other way, for what cannot be taken away once it is sent: a value is written only if its step
// comes after the last one of its name.
class StepSkipper {
 public:
  // A name that has come to `step` before this process.
  void set_last(std::string name, int64_t step) { last_[std::move(name)] = step; }
  void begin() { active_ = true; }
  // Whether the value is new.
  bool note(std::string_view name, const std::optional<int64_t>& step) {
    if (!step) return true;
    const auto found = last_.find(name);
    if (found == last_.end()) {
      last_.emplace(name, *step);
      return true;
    }
    if (active_ && *step <= found->second) return false;
    if (*step > found->second) found->second = *step;
    return true;
  }

 private:
  bool active_ = false;
  std::map<std::string, int64_t, std::less<>> last_;
};

}  // namespace accelerate::tracking

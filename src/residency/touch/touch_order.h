// In which order units are touched, and what that says about the next ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace accelerate::residency {

// Remembers the units in the order in which they were touched, and follows an earlier stretch of it
// as long as it repeats. Where it does not, the latest place where the same two units followed each
// other is taken up. So a training step is known from the second time on, evaluation beside it too,
// and an order that changes is learnt as it comes. What is said is a function of the calls alone:
// the same on all ranks that do the same.
class TouchOrder {
 public:
  // The next unit; several touches of one in a row count once.
  void add(size_t unit);
  // Nothing is known to follow at once: values change here. Several in a row count once.
  void add_boundary();

  // The unit that followed the latest one, `steps` later, when this was seen before: 1 for the
  // next. Nothing where that is unknown, or a boundary lies before it.
  std::optional<size_t> ahead(size_t steps) const;
  // The same for all steps, up to `most`. Until the next add.
  std::span<const size_t> expected(size_t most) const;

 private:
  static constexpr size_t kBoundary = std::numeric_limits<size_t>::max();
  static constexpr size_t kMostRemembered = 1 << 16;

  void note(size_t unit);
  void forget_oldest();

  std::vector<size_t> seen_;
  // Where it goes on by what was seen: seen_[trail_] is expected next. 0: nobody knows.
  size_t trail_ = 0;
  std::unordered_map<uint64_t, size_t> after_pair_;  // where it went on after two units, latest
};

}  // namespace accelerate::residency

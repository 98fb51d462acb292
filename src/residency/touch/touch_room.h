// Which units stay whole when others are touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace accelerate::residency {

// What is gathered ahead stays, and what is touched again near by. So does what the same pass will
// touch again, the next ones first, while all that is whole is less than half as much again as one
// unit and those gathered ahead of it need at most; or less than twice as much, for a unit that is
// as large as those in use: it is not sent twice because small ones lie between. Units of one size
// go. What is said is a function of the calls alone.
class TouchRoom {
 public:
  struct Options {
    size_t prefetch_units = 1;
    int64_t keep_within_numel = 0;  // of others
    int64_t max_whole_numel = 0;    // 0: no limit beyond the above
  };
  explicit TouchRoom(const Options& options) : options_(options) {}

  void add_unit(int64_t numel) { numels_.push_back(numel); }
  // A pass ends. What passes before the latest one needed is of no account any more.
  void note_boundary();

  // How many of the expected touches matter.
  size_t horizon() const { return 4 * numels_.size(); }
  // Before each touch: the units that are touched, all different, and what is expected to follow.
  void note_touch(std::span<const size_t> touched, std::span<const size_t> expected);
  // After it, by unit: whether it stays, of those that are whole.
  std::vector<bool> staying(std::span<const size_t> touched, std::span<const size_t> expected,
                            const std::vector<bool>& is_whole) const;

 private:
  bool has_room(int64_t numel, int64_t own) const;

  Options options_;
  std::vector<int64_t> numels_;
  int64_t present_ = 0;  // elements that the latest touch and those ahead of it need
  int64_t needed_ = 0;   // the most of these since the latest boundary
  int64_t needed_before_ = 0;
};

}  // namespace accelerate::residency

// The records of TensorBoard's event files: what an Event holds, and the frame around it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "accelerate/tracker.h"
#include "tracking/step_cuts.h"

namespace accelerate::tracking {

// When an event was, in seconds since 1970, and at which step.
struct EventStamp {
  double wall_time = 0;
  int64_t step = 0;
};

enum class ScalarKind { kSimple, kFloatTensor, kDoubleTensor };

// The first of each file.
std::string version_event(double wall_time);
// With it TensorBoard drops what earlier files of the folder have at this step and after it.
std::string session_start_event(const EventStamp& stamp);
std::string scalar_event(const EventStamp& stamp, std::string_view tag, double value,
                         ScalarKind kind = ScalarKind::kSimple);
std::string text_event(const EventStamp& stamp, std::string_view tag, std::string_view text);
// `png`: the bytes of a file.
std::string image_event(const EventStamp& stamp, std::string_view tag, const TrackedImage& size,
                        std::string_view png);
std::string histogram_event(const EventStamp& stamp, const TrackedHistogram& histogram);
// What the page of hyperparameters reads: which there are and which metrics belong to them, their
// values, and that the session ended well.
std::string hparams_experiment_event(const EventStamp& stamp, const TrackerConfig& hparams,
                                     const std::vector<std::string>& metrics);
std::string hparams_start_event(const EventStamp& stamp, const TrackerConfig& hparams);
std::string hparams_end_event(const EventStamp& stamp);

// Length, its checksum, the event and its checksum.
void append_record(std::string& file, std::string_view event);

// Takes records from the front of the bytes of a file. Stops for good at one that is cut off or
// damaged.
class RecordReader {
 public:
  explicit RecordReader(std::string_view file) : rest_(file) {}
  std::optional<std::string_view> next();
  // What is left, nothing if all records were whole.
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

// The records of a file without the values that `cuts` takes away, and without a damaged end.
// Nothing where there is nothing to take away.
std::optional<std::string> without_steps(std::string_view file, const StepCuts& cuts);

}  // namespace accelerate::tracking

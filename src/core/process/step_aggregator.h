// From single events to steps and their parts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/events.h"
#include "run_record/record_format.h"

namespace accelerate {

// Names of spans that are parts of a step, as they are emitted.
inline constexpr std::string_view kDataSpan = "loader: next batch";
inline constexpr std::string_view kForwardSpan = "forward";
inline constexpr std::string_view kBackwardSpan = "backward";
inline constexpr std::string_view kOptimizerSpan = "optimizer step";
inline constexpr std::string_view kProfilerSpan = "profiler";  // puts a trace together

// Parts of a step, as they are recorded.
inline constexpr std::string_view kDataPart = "data";
inline constexpr std::string_view kForwardPart = "forward";
inline constexpr std::string_view kBackwardPart = "backward";
inline constexpr std::string_view kOptimizerPart = "optimizer";
inline constexpr std::string_view kCheckpointPart = "checkpoint";
inline constexpr std::string_view kProfilerPart = "profiler";
inline constexpr std::string_view kExchangePart = "exchange";  // beside the others

// Adds up what events of one rank say of its steps. Short steps that end one after the other become
// one record. Times are nanoseconds of the steady clock. Used by one thread.
class StepAggregator {
 public:
  // A record covers at least this much time: in the first minutes of a run, and later.
  static constexpr int64_t kShortWindow = 100'000'000;
  static constexpr int64_t kLongWindow = 1'000'000'000;
  static constexpr int64_t kFirstMinutes = 600'000'000'000;

  enum class Records { kOfManySteps, kOfEachStep };
  explicit StepAggregator(Records records = Records::kOfManySteps) : records_(records) {}

  struct Done {
    run_record::Steps steps{};  // without names
    int64_t end_ns = 0;
    std::map<std::string_view, uint64_t> parts{};  // microseconds by name
  };

  // The first step begins here, unless it has begun.
  void begin_step(int64_t now_ns) {
    if (step_began_ns_ == 0) step_began_ns_ = now_ns;
  }
  // A record that is complete with this event, or nothing.
  std::optional<Done> take(const Event& event);
  // What has been added up, if it is older than `now_ns` by a window; by force: in any case.
  std::optional<Done> flush(int64_t now_ns, bool by_force = false);
  // Events were missed: what had begun may be over.
  void forget_open();

 private:
  std::optional<Done> end_step(int64_t now_ns);
  void add_part(std::string_view name, int64_t from_ns, int64_t to_ns);

  struct OpenSpan {
    int64_t since_ns = 0;
    int depth = 0;  // of spans of the same name inside of each other
  };

  const Records records_;
  std::map<std::pair<uint32_t, std::string>, OpenSpan> open_spans_;
  int open_exchanges_ = 0;
  int64_t exchange_since_ = 0;
  int64_t first_ns_ = 0;       // of all events
  int64_t step_began_ns_ = 0;  // where the step before ended; 0: none has begun
  int64_t optimizer_since_ = 0;
  int64_t steps_ = 0;
  bool waits_for_optimizer_ = false;  // the step is counted, and its update not over yet
  Done pending_;
};

}  // namespace accelerate

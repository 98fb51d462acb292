// Profiling a training loop: what operators, modules and the parts of a step take, and traces for
// Perfetto, chrome://tracing and HTA. Accelerator::profile() begins it; see docs/profiling.md.
// Standard headers only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/export.h"

namespace accelerate {

// A trace that cannot be written, or a file that is not one.
class ACCELERATE_EXPORT ProfileError : public Error {
 public:
  explicit ProfileError(ErrorInfo info) : Error("ProfileError", std::move(info)) {}
};

// What is recorded: ProfileActivity::kCpu, or the reference's spelling "cpu".
class ACCELERATE_EXPORT ProfileActivity {
 public:
  enum Value { kCpu, kCuda, kXpu, kMtia, kHpu };

  // NOLINTBEGIN(google-explicit-constructor): .activities = {"cpu", "cuda"}
  constexpr ProfileActivity(Value value = kCpu) : value_(value) {}
  // Throws UsageError for another word, and suggests the nearest.
  ProfileActivity(std::string_view name);
  ProfileActivity(const char* name) : ProfileActivity(std::string_view(name)) {}
  ProfileActivity(const std::string& name) : ProfileActivity(std::string_view(name)) {}
  // NOLINTEND(google-explicit-constructor)

  constexpr Value value() const { return value_; }
  std::string_view name() const;

  friend constexpr bool operator==(ProfileActivity, ProfileActivity) = default;

 private:
  Value value_;
};

enum class ProfileAction {
  kNone,
  kWarmup,         // the profiler is set up and what it sees is thrown away
  kRecord,         // recorded
  kRecordAndSave,  // recorded, and the trace ends with this step
};

// Which steps are recorded, by the rule of torch.profiler.schedule. The first `skip_first` steps
// are passed over. Then come cycles of `wait` idle steps, `warmup` steps and `active` recorded
// steps: `repeat` of them, or without end where that is 0. With `skip_first_wait` other than 0 the
// first cycle leaves its `wait` out.
struct ProfileSchedule {
  int64_t wait = 0;
  int64_t warmup = 0;
  int64_t active = 1;
  int64_t repeat = 0;
  int64_t skip_first = 0;
  int64_t skip_first_wait = 0;
};

// What happens in step number `step`, from 0. Throws UsageError if a number is negative, or
// `active` is 0.
ACCELERATE_EXPORT ProfileAction action_at(const ProfileSchedule& schedule, int64_t step);

class ProfileTrace;

// What the reference calls ProfileKwargs.
struct ProfileOptions {
  // Empty: the CPU, and the GPU if the accelerator has one.
  std::vector<ProfileActivity> activities{};
  // Unset: everything from the beginning to the end, as one trace.
  std::optional<ProfileSchedule> schedule{};
  // Called with each trace when its last step is over, in step() or end(), on this rank.
  std::function<void(const ProfileTrace&)> on_trace_ready{};
  // Shapes of the inputs of operators.
  bool record_shapes = false;
  // Allocations: tables and traces then have memory.
  bool profile_memory = false;
  // Stacks of TorchScript. What C++ calls directly has none.
  bool with_stack = false;
  // Estimates of floating-point operations, for matrix products, convolutions and a few more.
  bool with_flops = false;
  // Which module an operator belongs to; see ProfileTrace::modules().
  bool with_modules = false;
  // Where profile_<rank>.json goes, and with profile_memory memory_<rank>.csv: the last trace that
  // was recorded. Made if it is not there. Empty: nothing is written.
  std::filesystem::path output_trace_dir{};
};

// All calls of an operator in a trace. Times are microseconds; "self" leaves out what other
// operators did inside of it. Memory is what was allocated less what was given back.
struct OperatorTotals {
  std::string name{};
  std::string input_shapes{};  // "[[8, 4], [4]]" where calls are told apart by them
  int64_t calls = 0;
  double cpu_us = 0;
  double self_cpu_us = 0;
  double device_us = 0;
  double self_device_us = 0;
  int64_t cpu_bytes = 0;
  int64_t self_cpu_bytes = 0;
  int64_t device_bytes = 0;
  int64_t self_device_bytes = 0;
  uint64_t flops = 0;
};

// What the operators of a module took, those of its submodules included.
struct ModuleTotals {
  std::string name{};  // "encoder.0.linear"; "" for a whole prepared model
  int64_t calls = 0;   // operators that read its parameters, in forward passes
  double forward_us = 0;
  double backward_us = 0;
  double forward_device_us = 0;
  double backward_device_us = 0;
  uint64_t flops = 0;
};

// Of one device.
struct MemoryPeak {
  std::string device{};         // "cpu", "cuda:0"
  int64_t peak_bytes = 0;       // the most that was allocated at once, of what was recorded
  double peak_us = 0;           // when, since the trace began
  std::string peak_operator{};  // what allocated then; "" outside of operators
  int64_t allocations = 0;
  int64_t allocated_bytes = 0;  // all of them together
  int64_t left_bytes = 0;       // not given back when the trace ended
};

struct OperatorTableOptions {
  // "self_cpu_time_total", "cpu_time_total", "self_device_time_total", "device_time_total" (or
  // with "cuda" for "device"), "self_cpu_memory_usage", "cpu_memory_usage",
  // "self_device_memory_usage", "device_memory_usage", "flops", "count".
  std::string sort_by = "self_cpu_time_total";
  int64_t row_limit = 20;  // 0: all
  bool group_by_input_shape = false;
};

// What was recorded of one rank in one run of active steps. A handle; copies share it, and it may
// outlive the profile and the accelerator. One thread at a time.
class ACCELERATE_EXPORT ProfileTrace {
 public:
  struct ACCELERATE_HIDDEN Impl;
  explicit ProfileTrace(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  // The step after the last one that is in it.
  int64_t step_num() const;

  // By name, in the order of `sort_by`. Throw UsageError for a key that they do not know. Spans of
  // the user (RECORD_USER_SCOPE of libtorch) are among them; steps are ProfilerStep*.
  std::vector<OperatorTotals> operators(const OperatorTableOptions& options = {}) const;
  std::string operator_table(const OperatorTableOptions& options = {}) const;
  // Needs ProfileOptions::with_modules; empty without. C++ modules have no hooks, so operators are
  // found by what they read: one that reads a parameter of a module, inside a forward pass of a
  // prepared model, belongs to that module with all that it calls, and so does what autograd makes
  // of it. What reads no parameter (an activation, a sum) belongs to none. Weights that are tied,
  // or flat, are found only where the parameter itself is read.
  std::vector<ModuleTotals> modules() const;
  std::string module_table() const;
  // Needs ProfileOptions::profile_memory; empty without.
  std::vector<MemoryPeak> memory() const;
  std::string memory_table() const;

  // Writes the trace as JSON, with spans of the accelerator's own parts as user annotations and
  // exchanges on rows of their own. Written completely or not at all. Throws ProfileError.
  void export_chrome_trace(const std::filesystem::path& path) const;
  // A line for each allocation: microseconds since the trace began, device, bytes (negative: given
  // back), bytes in use, operator. Throws ProfileError.
  void export_memory_timeline(const std::filesystem::path& path) const;

 private:
  std::shared_ptr<Impl> impl_;
};

// How long a part of a step took: "data", "forward", "backward", "optimizer", "checkpoint",
// "profiler" (putting traces together, with on_trace_ready), "rest" or "exchange". An exchange may
// go on beside the others; these and the rest make the step.
struct StepPartTimes {
  std::string name{};
  double mean_us = 0;
  double median_us = 0;
  double share = 0;  // of all steps together, 0 to 1
};

// Where the steps of a rank went.
struct StepTimes {
  int rank = 0;
  int64_t steps = 0;
  double mean_us = 0;
  double median_us = 0;
  double longest_us = 0;
  std::vector<StepPartTimes> parts{};
};

// A table for people: one rank alone, or several with the slowest of each part.
ACCELERATE_EXPORT std::string step_table(const std::vector<StepTimes>& ranks);

namespace detail {
class ProfileSession;
}

// Records while it lives. Made by Accelerator::profile(), stepped and ended by the same thread
// (UsageError if not), before the accelerator. One in a process at a time, since libtorch has one
// profiler.
//
//   auto profile = accelerator.profile({.schedule = {{.wait = 1, .warmup = 1, .active = 3}},
//                                       .output_trace_dir = "traces"});
//   for (auto& batch : loader) { ...; profile.step(); }
//   profile.end();
class [[nodiscard]] ACCELERATE_EXPORT Profile {
 public:
  explicit Profile(std::unique_ptr<detail::ProfileSession> session);
  Profile(Profile&&) noexcept;
  Profile& operator=(Profile&&) = delete;
  // Ends it without a word to the other ranks. What this rank has recorded is written too if an
  // exception is on its way; on_trace_ready is not called then. What goes wrong is logged.
  ~Profile();

  // The next step begins. Call it once for each batch; without a schedule it only marks the steps.
  // Passes on what on_trace_ready throws; the trace is kept.
  void step();
  int64_t step_num() const;
  ProfileAction action() const;

  // Stops recording, calls on_trace_ready if a trace was open and writes the files of
  // output_trace_dir. Collective where there is such a folder: all files are there when it returns,
  // and if one cannot be written, all ranks throw. What on_trace_ready throws is passed on when the
  // files are written. A second call does nothing.
  void end();

  // The last trace that was recorded; nothing before the first one is complete.
  std::optional<ProfileTrace> trace() const;
  // Where steps went since the profile began, those of `skip_first` left out. Steps are those of
  // the prepared optimizers; where none makes any, those that step() marks. Costs no more than a
  // run that is recorded, since it reads the same events. Also after end().
  StepTimes step_times() const;
  std::string step_table() const { return accelerate::step_table({step_times()}); }
  // The same of all ranks, on all ranks. Collective.
  std::vector<StepTimes> step_times_of_all_ranks() const;

 private:
  int exceptions_at_begin_;
  std::unique_ptr<detail::ProfileSession> session_;
};

// How a trace was put in place when traces were merged.
struct MergedTrace {
  int rank = 0;
  std::string host{};
  double offset_us = 0;     // how far its clock was ahead of that of the first
  int64_t meetings = 0;     // exchanges that it was found by; 0: its clock was taken as it is
  double deviation_us = 0;  // from the offset, in the median
};

struct TraceMerge {
  std::filesystem::path path{};
  std::vector<MergedTrace> ranks{};
  int64_t events = 0;
};

// Puts profile_<rank>.json of a folder, from one run, into one trace: a process for each rank, and
// clocks of machines brought together so that exchanges end at the same time on all ranks. Reads
// event by event; memory does not grow with the traces, apart from their exchanges. Empty `output`:
// profile_merged.json in the folder. Not collective: call it on one rank, after Profile::end().
// Throws ProfileError for a folder without traces or with traces of runs on different numbers of
// ranks, and for files that are none.
ACCELERATE_EXPORT TraceMerge merge_traces(const std::filesystem::path& folder,
                                          const std::filesystem::path& output = {});

}  // namespace accelerate

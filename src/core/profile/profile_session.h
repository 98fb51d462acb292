// A profile from its begin to its end.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/process_state.h"
#include "accelerate/profiler.h"
#include "compat/kineto.h"
#include "core/profile/event_follower.h"
#include "core/profile/trace_recording.h"

namespace accelerate {

// What a profile needs of its accelerator.
struct ProfileContext {
  ProcessState state;
  std::shared_ptr<Communicator> ranks;
  // The modules that are prepared when a trace ends.
  std::function<ModuleNames()> modules;
};

namespace detail {

// The profiler of libtorch, which is off again when this goes.
class KinetoSwitch {
 public:
  explicit KinetoSwitch(const compat::KinetoConfig& config) : config_(config) {}
  ~KinetoSwitch();
  KinetoSwitch(const KinetoSwitch&) = delete;
  KinetoSwitch& operator=(const KinetoSwitch&) = delete;

  bool is_recording() const { return is_recording_; }
  void prepare();  // does nothing when it is prepared or records
  void start();
  compat::KinetoTrace stop();
  // Throws away what was prepared, if anything was.
  void discard();

 private:
  const compat::KinetoConfig config_;
  bool is_prepared_ = false;
  bool is_recording_ = false;
};

class ProfileSession {
 public:
  // Collective where the options have an output_trace_dir. Throws UsageError for options that
  // cannot be used, and ProfileError on all ranks if one of them cannot write there.
  ProfileSession(ProfileContext context, ProfileOptions options);
  // Nothing is recorded any more.
  ~ProfileSession();
  ProfileSession(const ProfileSession&) = delete;
  ProfileSession& operator=(const ProfileSession&) = delete;

  void step();
  void end();
  // What the destructor of Profile does.
  void end_alone(bool is_unwinding);

  const ProcessState& state() const { return context_.state; }
  int64_t step_num() const { return step_num_; }
  ProfileAction action() const { return action_; }
  const std::optional<ProfileTrace>& trace() const { return trace_; }
  StepTimes step_times();
  std::vector<StepTimes> step_times_of_all_ranks();

 private:
  enum class Tell { kUser, kNobody };

  ProfileAction planned() const;
  // libtorch's profiler belongs to the thread that started it.
  void require_own_thread() const;
  void require_options() const;
  void open_folder();
  void begin_action(ProfileAction next);
  void mark_step();
  void start_recording();
  // The trace is complete, and told to the user.
  void stop_recording(Tell tell);
  // Writes files whatever the user's function throws, and passes that on.
  void finish(Tell tell);
  void write_files() const;

  ProfileContext context_;  // without `modules` when the profile has ended
  const ProfileOptions options_;
  class Claim;
  std::unique_ptr<Claim> claim_;  // the profiler of the process; null when the profile has ended
  std::unique_ptr<EventFollower> follower_;
  std::optional<StepTimes> final_times_;
  int64_t step_num_ = 0;
  ProfileAction action_ = ProfileAction::kNone;
  const std::thread::id own_thread_ = std::this_thread::get_id();
  KinetoSwitch kineto_;
  std::optional<at::RecordFunction> step_span_;
  std::optional<ProfileTrace> trace_;
};

}  // namespace detail
}  // namespace accelerate

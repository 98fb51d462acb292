#include "core/profile/profile_session.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <sstream>
#include <system_error>
#include <utility>

#include "accelerate/log.h"
#include "base/host_name.h"
#include "base/json_quote.h"
#include "base/library_version.h"
#include "comm/agreement.h"
#include "comm/groups/activity.h"
#include "files/durable/replace_file.h"
#include "trace/trace_merge.h"

namespace accelerate::detail {
namespace {

constexpr const char* kWhere = "profile";

// The profiler of libtorch is one for the process.
std::atomic<bool> profiler_is_taken{false};

std::string memory_name(int rank) { return "memory_" + std::to_string(rank) + ".csv"; }

// Unix time less the steady clock, from the pair of readings that lie closest together.
int64_t clock_difference() {
  using Steady = std::chrono::steady_clock;
  constexpr int kReadings = 8;
  int64_t difference = 0;
  int64_t closest = INT64_MAX;
  for (int i = 0; i < kReadings; ++i) {
    const int64_t before = Steady::now().time_since_epoch().count();
    const int64_t unix_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                std::chrono::system_clock::now().time_since_epoch())
                                .count();
    const int64_t took = Steady::now().time_since_epoch().count() - before;
    if (took >= closest) continue;
    closest = took;
    difference = unix_ns - (before + took / 2);
  }
  return difference;
}

c10::DeviceType device_of(const ProfileContext& context) { return context.state.device().type(); }

std::string device_name(c10::DeviceType device) {
  return c10::DeviceTypeName(device, /*lower_case=*/true);
}

// The device whose work is recorded beside the CPU's.
std::optional<c10::DeviceType> recorded_device(const ProfileContext& context,
                                               const ProfileOptions& options) {
  const c10::DeviceType device = device_of(context);
  if (!compat::kineto_records(device)) return std::nullopt;
  if (options.activities.empty()) return device;
  for (const ProfileActivity activity : options.activities) {
    if (activity.name() == device_name(device)) return device;
  }
  return std::nullopt;
}

compat::KinetoConfig kineto_config(const ProfileContext& context, const ProfileOptions& options) {
  const auto& asked = options.activities;
  return {.cpu = asked.empty() ||
                 std::find(asked.begin(), asked.end(), ProfileActivity::kCpu) != asked.end(),
          .device = recorded_device(context, options),
          .record_shapes = options.record_shapes || options.with_modules,
          .profile_memory = options.profile_memory,
          .with_stack = options.with_stack,
          .with_flops = options.with_flops};
}

// What HTA looks for, and what merge_traces() reads.
void describe_rank(const ProcessState& state) {
  compat::add_to_trace("distributedInfo",
                       R"({"backend": ")" + std::string(state.device().is_cpu() ? "gloo" : "nccl") +
                           R"(", "rank": )" + std::to_string(state.rank()) + R"(, "world_size": )" +
                           std::to_string(state.world_size()) + "}");
  std::string about = R"({"host": )";
  append_json_text(about, host_name());
  about += R"(, "version": )";
  append_json_text(about, library_version());
  compat::add_to_trace("accelerate", about + "}");
}

// All ranks throw a ProfileError where one cannot write.
comm::TogetherOptions told_as_profile_error() {
  return {.keep_own = true,
          .retell = [](const Communicator& /*ranks*/, const comm::RankFailure& failure) {
            ErrorInfo info = failure.info;
            info.what = "on rank " + std::to_string(failure.rank) + ": " + info.what;
            throw ProfileError(std::move(info));
          }};
}

}  // namespace

class ProfileSession::Claim {
 public:
  Claim() {
    if (profiler_is_taken.exchange(true)) refuse();
    if (!compat::profiler_is_on()) return;
    profiler_is_taken = false;
    refuse();
  }
  ~Claim() { profiler_is_taken = false; }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

 private:
  [[noreturn]] static void refuse() {
    throw UsageError({.what = "another profile is open in this process",
                      .where = kWhere,
                      .hint = "end() it first: libtorch has one profiler for the process"});
  }
};

KinetoSwitch::~KinetoSwitch() {
  try {
    if (is_recording_) (void)stop();
    discard();
  } catch (const std::exception& error) {
    log(LogLevel::kError, std::string("profile: ") + error.what());
  }
}

void KinetoSwitch::prepare() {
  if (is_prepared_ || is_recording_) return;
  compat::prepare_kineto(config_);
  is_prepared_ = true;
}

void KinetoSwitch::start() {
  is_prepared_ = false;
  compat::start_kineto(config_);
  is_recording_ = true;
}

compat::KinetoTrace KinetoSwitch::stop() {
  is_recording_ = false;
  return compat::stop_kineto();
}

// Kineto is left as it was found only when it has been started and stopped.
void KinetoSwitch::discard() {
  if (!is_prepared_) return;
  start();
  (void)stop();
}

ProfileSession::ProfileSession(ProfileContext context, ProfileOptions options)
    : context_(std::move(context)),
      options_(std::move(options)),
      kineto_(kineto_config(context_, options_)) {
  const auto begin = [this] {
    require_options();
    claim_ = std::make_unique<Claim>();
    open_folder();
  };
  if (options_.output_trace_dir.empty()) {
    begin();
  } else {
    const comm::Activity activity(*context_.ranks, kWhere);
    comm::TogetherOptions together = told_as_profile_error();
    together.take_back = [this] { claim_.reset(); };
    comm::together(*context_.ranks, begin, together);
  }
  follower_ = std::make_unique<EventFollower>(
      comm::events_of(*context_.ranks), options_.schedule ? options_.schedule->skip_first : 0);
  begin_action(planned());
  mark_step();
}

ProfileSession::~ProfileSession() = default;

void ProfileSession::require_own_thread() const {
  if (std::this_thread::get_id() == own_thread_) return;
  throw UsageError({.what = "a profile is used by another thread than the one that began it",
                    .where = kWhere,
                    .hint = "call step() and end() on the thread that called profile()"});
}

void ProfileSession::require_options() const {
  (void)planned();  // throws for a schedule that cannot be
  const std::string own = device_name(device_of(context_));
  for (const ProfileActivity activity : options_.activities) {
    if (activity == ProfileActivity::kCpu) continue;
    if (activity.name() == own && compat::kineto_records(device_of(context_))) continue;
    throw UsageError({.what = "activities of " + std::string(activity.name()) +
                              " cannot be recorded: this accelerator works on " +
                              context_.state.device().str(),
                      .where = "ProfileOptions::activities",
                      .hint = "leave activities out for the CPU and the accelerator's device"});
  }
}

void ProfileSession::open_folder() {
  const std::filesystem::path& folder = options_.output_trace_dir;
  if (folder.empty()) return;
  try {
    std::filesystem::create_directories(folder);
    const std::filesystem::path probe =
        folder / (".profile_" + std::to_string(context_.state.rank()) + ".begun");
    files::replace_file(probe, [](files::ByteSink&) {});
    std::filesystem::remove(probe);
  } catch (const std::filesystem::filesystem_error& error) {
    throw ProfileError({.what = "traces cannot be written: " + error.code().message(),
                        .where = folder.string(),
                        .hint = "name a folder that can be made and written to on every rank"});
  } catch (const Error& error) {
    throw ProfileError({.what = "traces cannot be written: " + error.message(),
                        .where = folder.string(),
                        .hint = "name a folder that can be made and written to on every rank"});
  }
}

ProfileAction ProfileSession::planned() const {
  return options_.schedule ? action_at(*options_.schedule, step_num_) : ProfileAction::kRecord;
}

void ProfileSession::begin_action(ProfileAction next) {
  action_ = next;
  if (next == ProfileAction::kNone) return;
  kineto_.prepare();
  if (next != ProfileAction::kWarmup && !kineto_.is_recording()) start_recording();
}

void ProfileSession::start_recording() {
  kineto_.start();
  describe_rank(context_.state);
  follower_->begin_recording();
}

// Steps are spans of libtorch's own, so that they reach the rows of a GPU too, and events, so that
// those who follow the stream know where they begin.
void ProfileSession::mark_step() {
  const std::string name = std::string(kStepMark) + std::to_string(step_num_);
  Event event(EventKind::kSpanBegin, name);
  event.number = step_num_;
  comm::events_of(*context_.ranks)->emit(event);
  if (!kineto_.is_recording()) return;
  step_span_.emplace(at::RecordScope::USER_SCOPE);
  if (step_span_->isActive()) step_span_->before(name);
}

void ProfileSession::step() {
  if (!claim_) {
    throw UsageError({.what = "step() of a profile that has ended",
                      .where = kWhere,
                      .hint = "begin another one with accelerator.profile()"});
  }
  require_own_thread();
  const bool completes = action_ == ProfileAction::kRecordAndSave;
  ++step_num_;
  step_span_.reset();
  if (completes && kineto_.is_recording()) {
    const EventSpan span(comm::events_of(*context_.ranks), EventKind::kSpanBegin, kProfilerSpan);
    stop_recording(Tell::kUser);
  }
  begin_action(planned());
  mark_step();
}

void ProfileSession::stop_recording(Tell tell) {
  auto recorded = std::make_shared<ProfileTrace::Impl>(
      ProfileTrace::Impl{.kineto = kineto_.stop(),
                         .events = follower_->end_recording(),
                         .clock_ns = clock_difference(),
                         .own_system_thread = gettid(),
                         .step_num = step_num_,
                         .has_shapes = options_.record_shapes,
                         .has_memory = options_.profile_memory});
  if (options_.with_modules) recorded->modules = context_.modules();
  trace_ = ProfileTrace(std::move(recorded));
  action_ = ProfileAction::kNone;  // whatever the user's function throws
  if (tell == Tell::kUser && options_.on_trace_ready) options_.on_trace_ready(*trace_);
}

void ProfileSession::finish(Tell tell) {
  require_own_thread();
  step_span_.reset();
  final_times_ = follower_->step_times(context_.state.rank());
  // Another profile may begin, whatever the user's function throws.
  const auto claim = std::exchange(claim_, nullptr);
  std::exception_ptr thrown;
  try {
    kineto_.discard();
    if (kineto_.is_recording()) stop_recording(tell);
  } catch (...) {
    thrown = std::current_exception();
  }
  action_ = ProfileAction::kNone;
  if (const uint64_t lost = follower_->lost(); lost > 0) {
    log(LogLevel::kWarning, "profile: " + std::to_string(lost) +
                                " events passed unseen, since this machine was busy: the times of "
                                "steps and the trace lack what they were about");
  }
  follower_.reset();
  context_.modules = nullptr;
  write_files();
  if (thrown) std::rethrow_exception(thrown);
}

void ProfileSession::write_files() const {
  const std::filesystem::path& folder = options_.output_trace_dir;
  if (folder.empty()) return;
  const int rank = context_.state.rank();
  if (!trace_) {
    log(LogLevel::kWarning,
        "profile: nothing was recorded in " + std::to_string(step_num_) +
            " steps, so there is no " + trace::trace_name(rank) +
            "; call step() once for each batch, or let the schedule begin earlier");
    return;
  }
  trace_->export_chrome_trace(folder / trace::trace_name(rank));
  if (options_.profile_memory) trace_->export_memory_timeline(folder / memory_name(rank));
}

void ProfileSession::end() {
  if (!claim_) return;
  if (options_.output_trace_dir.empty()) return finish(Tell::kUser);
  const comm::Activity activity(*context_.ranks, kWhere);
  comm::together(*context_.ranks, [this] { require_own_thread(); }, {.keep_own = true});
  comm::together(
      *context_.ranks, [this] { finish(Tell::kUser); }, told_as_profile_error());
}

void ProfileSession::end_alone(bool is_unwinding) {
  if (!claim_) return;
  finish(is_unwinding ? Tell::kNobody : Tell::kUser);
}

StepTimes ProfileSession::step_times() {
  return final_times_ ? *final_times_ : follower_->step_times(context_.state.rank());
}

namespace {

std::string encode_times(const StepTimes& times) {
  std::ostringstream out;
  out.precision(17);
  out << times.rank << ' ' << times.steps << ' ' << times.mean_us << ' ' << times.median_us << ' '
      << times.longest_us << ' ' << times.parts.size();
  for (const StepPartTimes& part : times.parts) {
    out << ' ' << part.name << ' ' << part.mean_us << ' ' << part.median_us << ' ' << part.share;
  }
  return out.str();
}

StepTimes decode_times(const std::string& text) {
  std::istringstream in(text);
  StepTimes times;
  size_t parts = 0;
  in >> times.rank >> times.steps >> times.mean_us >> times.median_us >> times.longest_us >> parts;
  for (size_t i = 0; i < parts; ++i) {
    StepPartTimes part;
    in >> part.name >> part.mean_us >> part.median_us >> part.share;
    times.parts.push_back(std::move(part));
  }
  return times;
}

}  // namespace

std::vector<StepTimes> ProfileSession::step_times_of_all_ranks() {
  const comm::Activity activity(*context_.ranks, "step_times_of_all_ranks");
  std::vector<StepTimes> all;
  for (const std::string& text :
       comm::gather_together(*context_.ranks, [this] { return encode_times(step_times()); })) {
    all.push_back(decode_times(text));
  }
  return all;
}

}  // namespace accelerate::detail

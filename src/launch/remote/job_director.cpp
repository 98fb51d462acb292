#include "launch/remote/job_director.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "base/word_list.h"
#include "launch/output/failure_report.h"
#include "launch/plan/command_line.h"

namespace accelerate::launch {

std::string list_machines(const std::vector<int>& machines) {
  return (machines.size() == 1 ? "machine " : "machines ") + listed(machines);
}

JobDirector::JobDirector(const MachinePlan& plan, PortOfAttempt port_of_attempt,
                         Clock::time_point now, const std::optional<Inheritance>& inheritance)
    : plan_(plan),
      port_of_attempt_(std::move(port_of_attempt)),
      machines_(static_cast<size_t>(plan.num_machines)) {
  if (inheritance) {
    attempt_ = inheritance->attempt;
    before_ = inheritance->machines;
    before_.insert(kFormerMain);
    lost_ = inheritance->missing;
    lost_.insert(kFormerMain);
    if (inheritance->main_has_ended) ended_.insert(kFormerMain);
  }
  gather(now);
}

void JobDirector::gather(Clock::time_point now) {
  phase_ = Phase::kGathering;
  join_deadline_ = now + plan_.join_timeout;
  enough_since_.reset();
}

std::vector<int> JobDirector::missing_machines() const {
  std::vector<int> missing;
  for (size_t i = 0; i < machines_.size(); ++i) {
    if (!machines_[i].joined) missing.push_back(static_cast<int>(i));
  }
  return missing;
}

std::vector<int> JobDirector::joined_machines() const {
  std::vector<int> joined;
  for (size_t i = 0; i < machines_.size(); ++i) {
    if (machines_[i].joined) joined.push_back(static_cast<int>(i));
  }
  return joined;
}

void JobDirector::join(int machine, const std::string& host, const std::string& address) {
  Machine& state = machines_[static_cast<size_t>(machine)];
  state = {.joined = true, .running = false, .host = host, .address = address};
  lost_.erase(machine);
  ended_.erase(machine);
  if (plan_.has_range() && !plan_.quiet &&
      (phase_ == Phase::kRunning || phase_ == Phase::kStopping)) {
    orders_.push_back({0,
                       {.kind = Order::Kind::kNote,
                        .text = "accelerate launch: machine " + std::to_string(machine) + " (" +
                                host + ") waits for the next restart\n"}});
  }
  begin_if_complete();
}

// Enough of them, and no others that may go on by themselves: of the machines of the attempt before
// that are not known to have ended, more than half are here. So of two sides of a cut network one
// at most goes on.
bool JobDirector::may_begin_with_fewer() const {
  const std::vector<int> joined = joined_machines();
  if (!plan_.has_range() || static_cast<int>(joined.size()) < plan_.min_machines) return false;
  const auto of_before = [&](const std::set<int>& machines) {
    return std::count_if(before_.begin(), before_.end(),
                         [&](int machine) { return machines.count(machine) != 0; });
  };
  const auto voters = static_cast<ptrdiff_t>(before_.size()) - of_before(ended_);
  return voters == 0 || 2 * of_before({joined.begin(), joined.end()}) > voters;
}

// After an attempt: those of its machines that were not lost. Before the first one nobody knows.
bool JobDirector::has_all_that_may_come() const {
  return !before_.empty() && std::all_of(before_.begin(), before_.end(), [&](int machine) {
    return lost_.count(machine) != 0 || (machine >= 0 && has_joined(machine));
  });
}

void JobDirector::begin_if_complete() {
  if (phase_ != Phase::kGathering) return;
  const bool begins =
      missing_machines().empty() || (may_begin_with_fewer() && has_all_that_may_come());
  if (begins) begin();
}

void JobDirector::begin() {
  const std::vector<int> joined = joined_machines();
  phase_ = Phase::kRunning;
  before_ = {joined.begin(), joined.end()};
  ended_.clear();
  lost_.clear();
  told_cause_.clear();
  speak_at_.reset();
  outcome_ = LaunchOutcome{
      .world_size = plan_.processes_per_machine() * static_cast<int>(joined.size()),
      .workers = plan_.workers,
      .program = plan_.workers == kRanks ? program_name(plan_.command) : "",
      .led_to = plan_.led_to,
      .has_agents = plan_.launcher == LauncherKind::kSsh || plan_.launcher == LauncherKind::kSlurm,
      .repeat_last_lines = plan_.repeat_last_lines};
  Order start{.kind = Order::Kind::kStart,
              .attempt = attempt_,
              .main_address = plan_.main_address,
              .main_port = port_of_attempt_(attempt_),
              .run_id = plan_.run_id,
              .machines = static_cast<int>(joined.size())};
  for (const int machine : joined) {
    if (!plan_.has_range()) break;
    start.roster.push_back(
        {.machine = machine, .address = machines_[static_cast<size_t>(machine)].address});
  }
  for (const int machine : joined) {
    machines_[static_cast<size_t>(machine)].running = true;
    orders_.push_back({machine, start});
    ++start.place;
  }
  tell_of_fewer(joined);
}

void JobDirector::tell_of_fewer(const std::vector<int>& joined) {
  const std::vector<int> missing = missing_machines();
  if (missing.empty() || plan_.quiet) return;
  orders_.push_back({0,
                     {.kind = Order::Kind::kNote,
                      .text = "accelerate launch: going on with " + std::to_string(joined.size()) +
                              " of " + std::to_string(plan_.num_machines) + " machines, without " +
                              list_machines(missing) + "\n"}});
}

void JobDirector::remember_refusal(const std::string& text) {
  constexpr size_t kMaxRefusals = 8;
  if (std::find(refusals_.begin(), refusals_.end(), text) != refusals_.end()) return;
  if (refusals_.size() < kMaxRefusals) {
    refusals_.push_back(text);
    if (plan_.quiet) return;
    orders_.push_back(
        {0, {.kind = Order::Kind::kNote, .text = "accelerate launch: refused: " + text + "\n"}});
  } else {
    had_more_refusals_ = true;
  }
}

void JobDirector::lose(int machine, const std::string& why, Clock::time_point now, Loss loss) {
  Machine& state = machines_[static_cast<size_t>(machine)];
  if (!state.joined) return;
  lost_.insert(machine);
  if (loss == Loss::kEnded) ended_.insert(machine);
  const std::string text =
      "machine " + std::to_string(machine) + " (" + state.host + ") was lost: " + why;
  const bool had_workers = state.running;
  state = Machine{};
  if (phase_ != Phase::kRunning && phase_ != Phase::kStopping) return;
  if (!had_workers) return;
  if (phase_ == Phase::kRunning) {
    outcome_.lost_machine = text;
    stop_all(0, now);
  }
  conclude_if_ended(now);
}

void JobDirector::handle(int machine, const MachineReport& report, Clock::time_point now) {
  if (phase_ == Phase::kFinished) return;
  if (report.kind == MachineReport::Kind::kSignal) {
    // One signal may reach several launchers, as over ssh: only the second to the same one is more.
    const bool again = std::exchange(machines_[static_cast<size_t>(machine)].told_to_stop, true);
    if (phase_ == Phase::kGathering) {
      outcome_ = LaunchOutcome{.world_size = plan_.num_processes, .stop_signal = report.signal};
      finish(outcome_.exit_code(), failure_report(outcome_), failure_summary(outcome_));
    } else if (outcome_.stop_signal) {
      if (report.signal != SIGINT || !again) return;
      send_all({.kind = Order::Kind::kKill});
      speak_at_.reset();  // the whole report comes soon
      if (machine == 0 && !leave_at_) leave_at_ = now + kPatienceAfterKill;
    } else {
      outcome_.stop_signal = report.signal;
      if (phase_ == Phase::kRunning) stop_all(report.signal, now);
    }
    return;
  }
  if (report.attempt != attempt_ || !machines_[static_cast<size_t>(machine)].running) return;
  take_ends(report);
  if (report.kind == MachineReport::Kind::kFailed) {
    if (phase_ == Phase::kRunning) stop_all(0, now);
    return;
  }
  machines_[static_cast<size_t>(machine)].running = false;
  outcome_.grace = std::max(outcome_.grace, report.grace);
  conclude_if_ended(now);
}

void JobDirector::take_ends(const MachineReport& report) {
  for (const WorkerEnd& end : report.ends) {
    const bool known = std::any_of(outcome_.ends.begin(), outcome_.ends.end(),
                                   [&](const WorkerEnd& other) { return other.rank == end.rank; });
    if (!known) outcome_.ends.push_back(end);
  }
}

void JobDirector::stop_all(int signal, Clock::time_point now) {
  phase_ = Phase::kStopping;
  speak_at_ = now + kPatienceBeforeWord;
  send_all({.kind = Order::Kind::kStop, .attempt = attempt_, .signal = signal});
}

// The workers take their time to end: why they were told to.
void JobDirector::tell_why_it_stops() {
  speak_at_.reset();
  const WorkerEnd* first = outcome_.first_failure();
  if (first == nullptr && outcome_.lost_machine.empty()) {
    const bool is_told_there = outcome_.has_agents || plan_.quiet;
    if (is_told_there || !outcome_.stop_signal) return;
    send_all({.kind = Order::Kind::kNote,
              .text = stopping_note(*outcome_.stop_signal, plan_.signal_grace)});
    return;
  }
  told_cause_ = failure_summary(outcome_);
  if (told_cause_.empty()) return;
  for (int machine = 0; machine < plan_.num_machines; ++machine) {
    if (!has_joined(machine)) continue;
    const std::string text = machine == 0 ? failure_cause(outcome_) : told_cause_;
    orders_.push_back({machine, {.kind = Order::Kind::kNote, .text = text}});
  }
}

// What has to be said of the attempt, besides what was said while it stopped.
std::string JobDirector::rest_of_report() const {
  const bool is_told = !told_cause_.empty() && told_cause_ == failure_summary(outcome_);
  return is_told ? failure_consequences(outcome_) : failure_report(outcome_);
}

std::string JobDirector::rest_of_summary() const {
  const std::string summary = failure_summary(outcome_);
  return summary == told_cause_ ? "" : summary;
}

void JobDirector::conclude_if_ended(Clock::time_point now) {
  const bool still_running = std::any_of(machines_.begin(), machines_.end(),
                                         [](const Machine& machine) { return machine.running; });
  if (still_running) return;
  const std::string report = rest_of_report();
  const bool may_restart = attempt_ < plan_.max_restarts && !outcome_.stop_signal;
  if (outcome_.succeeded() || !may_restart) {
    finish(outcome_.exit_code(), report, rest_of_summary());
    return;
  }
  ++attempt_;
  const std::string restart = "accelerate launch: starting again, restart " +
                              std::to_string(attempt_) + " of " +
                              std::to_string(plan_.max_restarts) + "\n";
  for (int machine = 0; machine < plan_.num_machines; ++machine) {
    if (!has_joined(machine)) continue;
    const std::string text = machine == 0 ? report : rest_of_summary();
    orders_.push_back({machine, {.kind = Order::Kind::kNote, .text = text + restart}});
  }
  gather(now);
  begin_if_complete();
}

void JobDirector::leave_without_answer() {
  std::vector<int> silent;
  for (size_t i = 0; i < machines_.size(); ++i) {
    if (machines_[i].running) silent.push_back(static_cast<int>(i));
  }
  finish(outcome_.exit_code(),
         rest_of_report() + "  " + list_machines(silent) + " did not answer\n", rest_of_summary());
}

void JobDirector::begin_with_fewer_in_time(Clock::time_point now) {
  if (!may_begin_with_fewer()) {
    enough_since_.reset();
    return;
  }
  if (!enough_since_) enough_since_ = now;
  if (has_all_that_may_come() || now - *enough_since_ >= plan_.last_call) begin();
}

void JobDirector::handle_time(Clock::time_point now) {
  const bool leaves = phase_ == Phase::kStopping && leave_at_ && now >= *leave_at_;
  if (leaves && !machines_.front().running) leave_without_answer();
  if (phase_ == Phase::kStopping && speak_at_ && now >= *speak_at_) tell_why_it_stops();
  if (phase_ != Phase::kGathering) return;
  begin_with_fewer_in_time(now);
  if (phase_ != Phase::kGathering || now < join_deadline_) return;
  std::string text = "error: " + list_machines(missing_machines()) + " did not connect within " +
                     describe_duration(plan_.join_timeout) + "\n";
  if (!outcome_.lost_machine.empty()) text += "  " + outcome_.lost_machine + "\n";
  for (const std::string& refusal : refusals_) text += "  refused: " + refusal + "\n";
  if (had_more_refusals_) text += "  and others for other reasons\n";
  // Behind ssh or srun nobody gave this launcher flags.
  text += plan_.is_agent
              ? "  try  see the messages about them above: each must reach this machine at " +
                    plan_.main_address + ":" + std::to_string(plan_.main_port) +
                    " (--main_process_ip names another address of it)\n"
              : "  try  run accelerate launch on every machine, with the same --main_process_ip "
                "and --main_process_port\n";
  finish(kLostMachineExitCode, text, text);
}

void JobDirector::finish(int exit_code, const std::string& text,
                         const std::string& text_for_others) {
  phase_ = Phase::kFinished;
  for (int machine = 0; machine < plan_.num_machines; ++machine) {
    if (!has_joined(machine)) continue;
    orders_.push_back({machine,
                       {.kind = Order::Kind::kFinish,
                        .exit_code = exit_code,
                        .text = machine == 0 ? text : text_for_others}});
  }
}

void JobDirector::send_all(const Order& order) {
  for (int machine = 0; machine < plan_.num_machines; ++machine) {
    if (has_joined(machine)) orders_.push_back({machine, order});
  }
}

std::optional<std::pair<int, Order>> JobDirector::next_order() {
  if (orders_.empty()) return std::nullopt;
  auto next = std::move(orders_.front());
  orders_.pop_front();
  return next;
}

std::optional<JobDirector::Clock::time_point> JobDirector::deadline() const {
  if (phase_ == Phase::kGathering) {
    return enough_since_ ? std::min(join_deadline_, *enough_since_ + plan_.last_call)
                         : join_deadline_;
  }
  if (phase_ != Phase::kStopping) return std::nullopt;
  const bool waits_for_others = leave_at_ && !machines_.front().running;
  if (!waits_for_others) return speak_at_;
  return speak_at_ ? std::min(*speak_at_, *leave_at_) : leave_at_;
}

}  // namespace accelerate::launch

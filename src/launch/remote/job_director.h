// Decides what becomes of a job: when its machines begin, stop, begin anew and finish.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launch/plan/machine_plan.h"
#include "launch/remote/job_control.h"

namespace accelerate::launch {

// Lives in the launcher of machine 0. Rules alone: it owns no connection, no process and no clock.
//
// An attempt begins when all machines have come; of a job with a range of machines (see
// LaunchPlan::min_machines) also with fewer, see may_begin_with_fewer(). It ends on all of them
// together: with the first failure, lost machine or stop signal anywhere, or when the last worker
// has ended well. What failed or was lost begins anew while restarts are left; a lost machine may
// come back for it.
class JobDirector {
 public:
  using Clock = std::chrono::steady_clock;

  // How long machines have to tell that their workers are gone, once the user of machine 0 has told
  // it to stop a second time. Its own workers are waited for without limit.
  static constexpr std::chrono::milliseconds kPatienceAfterKill{2'000};

  // Workers that are told to stop have this long to end before the user hears why: most do, and the
  // whole report comes at once. Until then a better explanation of a failure may come, too.
  static constexpr std::chrono::milliseconds kPatienceBeforeWord{700};

  // What a launcher takes over from a main machine that was lost.
  struct Inheritance {
    int attempt = 0;             // that comes next
    std::set<int> machines{};    // of the attempt before, this one included; this one is 0 now
    std::set<int> missing{};     // of these: those that were looked for in vain
    bool main_has_ended = true;  // false: it only fell silent, and may still run somewhere
  };

  // Names the place where rank 0 of an attempt serves the rendezvous. May throw CommError.
  using PortOfAttempt = std::function<int(int attempt)>;

  JobDirector(const MachinePlan& plan, PortOfAttempt port_of_attempt, Clock::time_point now,
              const std::optional<Inheritance>& inheritance = std::nullopt);

  // Machine `machine` has come (again), and can be reached at `address`. It must not be there
  // already.
  void join(int machine, const std::string& host, const std::string& address = "");
  // A machine that has ended will not go on by itself; one that fell silent may.
  enum class Loss { kEnded, kSilent };
  // It went away, for the reason `why`: "its connection ended". Nothing if it was not there.
  void lose(int machine, const std::string& why, Clock::time_point now, Loss loss = Loss::kEnded);
  // A machine was turned away: told now, and again if the job cannot begin. The first few reasons
  // are kept.
  void remember_refusal(const std::string& text);
  void handle(int machine, const MachineReport& report, Clock::time_point now);
  void handle_time(Clock::time_point now);

  // The next order and the machine that it is for.
  std::optional<std::pair<int, Order>> next_order();
  std::optional<Clock::time_point> deadline() const;
  bool has_joined(int machine) const { return machines_[static_cast<size_t>(machine)].joined; }
  std::vector<int> missing_machines() const;

 private:
  // Stands for the main machine of the attempt before, whose number is ours now.
  static constexpr int kFormerMain = -1;

  enum class Phase { kGathering, kRunning, kStopping, kFinished };
  struct Machine {
    bool joined = false;
    bool running = false;  // has workers of the present attempt
    std::string host{};
    std::string address{};
    bool told_to_stop = false;  // its launcher got a signal
  };

  void gather(Clock::time_point now);
  void begin_if_complete();
  void begin();
  void begin_with_fewer_in_time(Clock::time_point now);
  void tell_of_fewer(const std::vector<int>& joined);
  std::vector<int> joined_machines() const;
  bool may_begin_with_fewer() const;
  bool has_all_that_may_come() const;
  void stop_all(int signal, Clock::time_point now);
  void tell_why_it_stops();
  std::string rest_of_report() const;
  std::string rest_of_summary() const;
  void take_ends(const MachineReport& report);
  void conclude_if_ended(Clock::time_point now);
  void leave_without_answer();
  void finish(int exit_code, const std::string& text, const std::string& text_for_others);
  void send_all(const Order& order);

  const MachinePlan& plan_;
  const PortOfAttempt port_of_attempt_;
  std::vector<Machine> machines_;
  Phase phase_ = Phase::kGathering;
  int attempt_ = 0;
  Clock::time_point join_deadline_;
  // Of a job with a range: when there were enough machines for an attempt; those of the attempt
  // before, and which of them are known to have ended.
  std::optional<Clock::time_point> enough_since_;
  std::set<int> before_;
  std::set<int> ended_;
  std::set<int> lost_;                         // these, and those that fell silent
  std::optional<Clock::time_point> leave_at_;  // whoever has not answered by then
  std::optional<Clock::time_point> speak_at_;  // if workers that were told to stop still run
  std::string told_cause_;  // the summary of what was said of the present attempt
  LaunchOutcome outcome_;   // of the present attempt
  std::vector<std::string> refusals_;
  bool had_more_refusals_ = false;
  std::deque<std::pair<int, Order>> orders_;
};

// "machine 1", "machines 0, 2 and 3".
std::string list_machines(const std::vector<int>& machines);

}  // namespace accelerate::launch

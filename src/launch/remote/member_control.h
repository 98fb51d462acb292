// The side of every machine but the main one: orders come over the network.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "launch/plan/machine_plan.h"
#include "launch/remote/address_lookup.h"
#include "launch/remote/job_control.h"
#include "launch/remote/line_channel.h"
#include "launch/remote/network.h"

namespace accelerate::launch {

// Connects to the main machine and tries again until plan.join_timeout is over. If the main machine
// is lost later, the workers are stopped; after a silence (a cut cable, not an ended launcher) and
// with restarts left it then connects anew, for the next attempt. In a job with a range of machines
// it leaves that to its owner.
class MemberControl : public JobControl {
 public:
  // If nobody answers in time: the end of the job here, or a matter of the owner.
  enum class GiveUp { kFinishes, kIsTold };

  // `plan` outlives this object.
  explicit MemberControl(const MachinePlan& plan, GiveUp give_up = GiveUp::kFinishes);

  // What is left when the main machine of an attempt was lost and the workers here have ended.
  struct Orphaned {
    Order last_start{};           // of the attempt
    bool main_has_ended = false;  // false: it only fell silent
    std::string why{};
  };
  // Set once, in a job with a range of machines and restarts left; then this object does nothing.
  const std::optional<Orphaned>& orphaned() const { return orphaned_; }
  // With GiveUp::kIsTold: nobody has answered in time, and this object does nothing more.
  bool gave_up() const { return gave_up_; }

  void report(const MachineReport& report) override;
  std::optional<Order> next_order() override;
  void add_descriptors(std::vector<pollfd>& fds) const override;
  void handle_descriptors(const pollfd* fds, size_t count) override;
  void handle_time() override;
  std::optional<std::chrono::steady_clock::time_point> deadline() const override;
  bool wants_flush() const override { return channel_.wants_write(); }

 private:
  using Clock = std::chrono::steady_clock;
  enum class State {
    kConnecting,  // no connection yet
    kGreeting,    // said hello
    kMember,
    kEnding,  // the main machine is lost: the workers end
    kFinished,
  };

  void begin_joining();
  bool has_looked_up();
  void connect_again();
  void take_connection(UniqueFd socket);
  void fail_connection(const std::string& reason);
  void obey(const Message& message);
  void lose_main(std::string why, bool may_come_back);
  bool may_be_succeeded() const;
  void take_signal(int signal);
  void leave_without_answer();
  void finish(int exit_code, const std::string& text);
  void give_up_joining();
  std::string endpoint() const;

  const MachinePlan& plan_;
  const std::string identity_;  // tells this process from all others that claim the same place
  State state_ = State::kConnecting;
  std::optional<AddressLookup> lookup_;  // of the main machine, under way
  ResolvedHost main_machine_;            // what the last one found
  std::optional<Clock::time_point> looked_up_;
  std::vector<Connecting> attempts_;
  LineChannel channel_;
  std::deque<Order> orders_;
  bool running_ = false;     // workers of an attempt are here
  bool comes_back_ = false;  // after kEnding
  const GiveUp give_up_;
  bool gave_up_ = false;
  std::optional<Order> last_start_;
  std::optional<Orphaned> next_orphaned_;  // once the workers have ended
  std::optional<Orphaned> orphaned_;
  std::string last_error_;  // of an attempt to connect
  std::string lost_text_;   // what became of the main machine
  bool told_that_it_waits_ = false;
  std::optional<int> stop_signal_;             // the first that this launcher got
  std::optional<Clock::time_point> leave_at_;  // even if the main machine has not answered by then
  Clock::time_point join_began_;
  Clock::time_point next_try_;
  Clock::time_point attempt_began_;
  Clock::time_point next_beat_ = Clock::now();
};

}  // namespace accelerate::launch

// The side of machine 0: orders for this machine and, over the network, for the others.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/plan/machine_plan.h"
#include "launch/plan/port_reservation.h"
#include "launch/remote/job_control.h"
#include "launch/remote/job_director.h"
#include "launch/remote/line_channel.h"

namespace accelerate::launch {

class MainControl : public JobControl {
 public:
  // On several machines listens at plan.main_port, for the other launchers; throws ConfigError if
  // that cannot be, or if plan.same_network and plan.main_address is not an address of this
  // machine. On one, reserves plan.main_port (0: any) for rank 0: throws ConfigError if it is in
  // use, CommError if there is none. `plan` outlives this object.
  // With `inheritance` goes on with a job whose main machine was lost.
  explicit MainControl(const MachinePlan& plan,
                       const std::optional<JobDirector::Inheritance>& inheritance = std::nullopt);

  void report(const MachineReport& report) override;
  std::optional<Order> next_order() override;
  void add_descriptors(std::vector<pollfd>& fds) const override;
  void handle_descriptors(const pollfd* fds, size_t count) override;
  void handle_time() override;
  std::optional<std::chrono::steady_clock::time_point> deadline() const override;
  void begin_farewell() override;
  bool wants_flush() const override;

 private:
  using Clock = std::chrono::steady_clock;

  int port_of_attempt(int attempt);
  void accept_all();
  void greet(LineChannel& guest);
  // Why the guest that said `hello` may not join, or "".
  std::string refusal(const Message& hello, const std::string& peer) const;
  void listen_to(int machine, LineChannel& channel);
  void drop_lost_members();
  void forward_orders();
  void tell_who_is_missing(Clock::time_point now);

  const MachinePlan& plan_;
  std::optional<PortReservation> reservation_;  // for rank 0 of the present attempt
  UniqueFd listener_;                           // none on one machine
  JobDirector director_;
  std::vector<LineChannel> guests_;  // connected, have not said who they are
  std::map<int, LineChannel> members_;
  std::map<int, std::string> identities_;  // which process a member is
  std::deque<Order> own_orders_;
  const Clock::time_point began_ = Clock::now();
  bool told_who_is_missing_ = false;
  Clock::time_point next_beat_ = Clock::now();
  bool says_goodbye_ = false;
};

}  // namespace accelerate::launch

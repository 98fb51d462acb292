#include "launch/remote/member_control.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "launch/output/failure_report.h"
#include "launch/plan/machine.h"
#include "launch/remote/greeting.h"

namespace accelerate::launch {
namespace {

constexpr std::chrono::milliseconds kPauseBetweenTries{200};
constexpr std::chrono::seconds kPatienceWithConnect{5};
// How long it counts what the resolver said of the main machine: attempts to connect come more
// often than name servers like to be asked.
constexpr std::chrono::seconds kAnswerCounts{2};
constexpr std::chrono::seconds kPatienceWithWelcome{10};
constexpr std::chrono::seconds kPatienceWithMain{3};
// With a main machine that does not answer, once the user has told this one to stop a second time.
constexpr std::chrono::seconds kPatienceAfterKill{2};

std::string make_identity() {
  return short_host_name() + "." + std::to_string(getpid()) + "." +
         std::to_string(std::chrono::system_clock::now().time_since_epoch().count());
}

}  // namespace

MemberControl::MemberControl(const MachinePlan& plan, GiveUp give_up)
    : plan_(plan), identity_(make_identity()), give_up_(give_up) {
  begin_joining();
}

std::string MemberControl::endpoint() const {
  return plan_.main_address + ":" + std::to_string(plan_.main_port);
}

void MemberControl::begin_joining() {
  state_ = State::kConnecting;
  join_began_ = next_try_ = Clock::now();
  attempts_.clear();
}

// True once `main_machine_` holds what is known of it now.
bool MemberControl::has_looked_up() {
  const auto now = Clock::now();
  if (!lookup_ && looked_up_ && now - *looked_up_ < kAnswerCounts) return true;
  if (!lookup_) lookup_.emplace(plan_.main_address, plan_.main_port);
  auto answer = lookup_->answer();
  if (!answer) {
    if (last_error_.empty()) last_error_ = "its name is still being looked up";
    return false;
  }
  lookup_.reset();
  main_machine_ = std::move(*answer);
  looked_up_ = now;
  return true;
}

void MemberControl::connect_again() {
  attempts_.clear();
  if (!has_looked_up()) return;  // its descriptor tells when
  attempts_ = begin_connecting(main_machine_);
  attempt_began_ = Clock::now();
  for (const Connecting& attempt : attempts_) {
    if (!attempt.socket) last_error_ = attempt.error;
  }
  std::erase_if(attempts_, [](const Connecting& attempt) { return !attempt.socket; });
  if (attempts_.empty()) next_try_ = attempt_began_ + kPauseBetweenTries;
}

void MemberControl::take_connection(UniqueFd socket) {
  attempts_.clear();
  channel_ = LineChannel(std::move(socket), plan_.main_address);
  state_ = State::kGreeting;
  attempt_began_ = Clock::now();
  Message hello("hello");
  hello.set("version", kProtocolVersion)
      .set("machine", plan_.machine_rank)
      .set("machines", plan_.num_machines)
      .set("processes", plan_.num_processes)
      .set("host", short_host_name())
      .set("identity", identity_);
  if (plan_.has_range()) hello.set("min_machines", plan_.min_machines);
  if (!plan_.run_id.empty()) hello.set("run", plan_.run_id);
  channel_.send(hello);
}

void MemberControl::fail_connection(const std::string& reason) {
  last_error_ = reason;
  channel_ = LineChannel();
  state_ = State::kConnecting;
  next_try_ = Clock::now() + kPauseBetweenTries;
}

void MemberControl::add_descriptors(std::vector<pollfd>& fds) const {
  if (state_ == State::kConnecting) {
    for (const Connecting& attempt : attempts_) fds.push_back({attempt.socket.get(), POLLOUT, 0});
    if (lookup_) fds.push_back({lookup_->fd(), POLLIN, 0});
    return;
  }
  const short events = channel_.wants_write() ? POLLIN | POLLOUT : POLLIN;
  fds.push_back({channel_.fd(), events, 0});
}

void MemberControl::handle_descriptors(const pollfd* fds, size_t count) {
  if (state_ == State::kConnecting) {
    for (size_t i = 0; i < count && i < attempts_.size(); ++i) {
      if (fds[i].revents == 0) continue;
      last_error_ = connection_error(attempts_[i].socket.get());
      if (last_error_.empty()) {
        take_connection(std::move(attempts_[i].socket));
        return;
      }
      attempts_[i].socket.reset();
    }
    std::erase_if(attempts_, [](const Connecting& attempt) { return !attempt.socket; });
    if (attempts_.empty()) next_try_ = std::max(next_try_, attempt_began_ + kPauseBetweenTries);
    return;
  }
  if (count == 0) return;
  channel_.handle(fds[0].revents);
  while (const auto message = channel_.next()) obey(*message);
  if (channel_.end_reason().empty()) return;
  if (state_ == State::kGreeting) {
    fail_connection("what listens there is not accelerate launch, or it just ended");
  } else if (state_ == State::kMember) {
    lose_main(channel_.end_reason(), false);
  }
}

void MemberControl::obey(const Message& message) {
  if (state_ == State::kGreeting && message.name() == "welcome") {
    state_ = State::kMember;
    next_beat_ = Clock::now();
    return;
  }
  if (state_ == State::kGreeting && message.name() == "refuse") {
    constexpr int kUsageExitCode = 2;
    finish(kUsageExitCode, "error: the main machine at " + endpoint() +
                               " refused this one\n  at   " + message.text("text") +
                               "\n  try  give all machines the same flags, "
                               "but for --machine_rank\n");
    return;
  }
  if (state_ != State::kMember) return;
  auto order = Order::from(message);
  if (!order) return;
  if (plan_.is_agent) order->text.clear();  // the main machine says it in the same place
  if (order->kind == Order::Kind::kStart) {
    running_ = true;
    last_start_ = *order;
  }
  if (order->kind == Order::Kind::kFinish) {
    finish(order->exit_code, order->text);  // the main machine waits for the end of the connection
  } else {
    orders_.push_back(*order);
  }
}

// The other machines of the last attempt go on without the main one.
bool MemberControl::may_be_succeeded() const {
  return plan_.has_range() && last_start_ && last_start_->roster.size() > 1 &&
         last_start_->attempt < plan_.max_restarts && !stop_signal_;
}

void MemberControl::lose_main(std::string why, bool may_come_back) {
  const bool has_ended = channel_.was_ended_by_peer();
  channel_ = LineChannel();
  lost_text_ = "the main machine at " + endpoint() + " was lost: " + why;
  if (may_be_succeeded()) {
    next_orphaned_ =
        Orphaned{.last_start = *last_start_, .main_has_ended = has_ended, .why = lost_text_};
  }
  comes_back_ = may_come_back && plan_.max_restarts > 0;
  state_ = State::kEnding;
  if (running_) {
    orders_.push_back({.kind = Order::Kind::kStop});
  } else {
    report({.kind = MachineReport::Kind::kEnded});
  }
}

void MemberControl::report(const MachineReport& report) {
  if (report.kind == MachineReport::Kind::kEnded) running_ = false;
  if (report.kind == MachineReport::Kind::kSignal) take_signal(report.signal);
  if (state_ == State::kMember) {
    channel_.send(report.message());
    return;
  }
  if (report.kind == MachineReport::Kind::kSignal && state_ != State::kEnding) {
    LaunchOutcome outcome{.world_size = plan_.num_processes, .stop_signal = report.signal};
    finish(outcome.exit_code(), failure_report(outcome));
  } else if (report.kind == MachineReport::Kind::kSignal) {
    comes_back_ = false;
    next_orphaned_.reset();
  } else if (state_ == State::kEnding && report.kind == MachineReport::Kind::kEnded) {
    if (next_orphaned_) {
      orphaned_ = std::move(next_orphaned_);
      state_ = State::kFinished;
      return;
    }
    if (!comes_back_) {
      finish(kLostMachineExitCode, "error: " + lost_text_ + "\n  try  look at the output there\n");
      return;
    }
    orders_.push_back({.kind = Order::Kind::kNote,
                       .text = "error: " + lost_text_ +
                               "\naccelerate launch: reconnecting for the next restart\n"});
    begin_joining();
  }
}

void MemberControl::take_signal(int signal) {
  if (stop_signal_ && signal == SIGINT && !leave_at_) leave_at_ = Clock::now() + kPatienceAfterKill;
  if (!stop_signal_) stop_signal_ = signal;
}

void MemberControl::leave_without_answer() {
  LaunchOutcome outcome{.world_size = plan_.num_processes, .stop_signal = stop_signal_};
  finish(outcome.exit_code(),
         failure_report(outcome) + "  the main machine at " + endpoint() + " did not answer\n");
}

std::optional<Order> MemberControl::next_order() {
  if (orders_.empty()) return std::nullopt;
  Order order = std::move(orders_.front());
  orders_.pop_front();
  return order;
}

void MemberControl::finish(int exit_code, const std::string& text) {
  if (state_ == State::kFinished) return;
  state_ = State::kFinished;
  channel_ = LineChannel();
  attempts_.clear();
  orders_.push_back({.kind = Order::Kind::kFinish, .exit_code = exit_code, .text = text});
}

void MemberControl::handle_time() {
  const auto now = Clock::now();
  if (state_ == State::kMember) {
    if (leave_at_ && now >= *leave_at_ && !running_) {
      leave_without_answer();
      return;
    }
    if (now < next_beat_) return;
    next_beat_ = now + plan_.beat_interval();
    channel_.send(Message("alive"));
    if (now - channel_.last_heard() > plan_.machine_timeout) {
      lose_main("no sign of life for " + describe_duration(plan_.machine_timeout), true);
    }
    return;
  }
  if (state_ == State::kGreeting && now - attempt_began_ > kPatienceWithWelcome) {
    fail_connection("what listens there is not accelerate launch");
  }
  if (state_ != State::kConnecting) return;
  // However late this process gets its turn, it has tried once.
  const bool has_tried = !last_error_.empty() || !attempts_.empty();
  if (has_tried && now - join_began_ >= plan_.join_timeout) {
    give_up_joining();
    return;
  }
  if (!told_that_it_waits_ && !plan_.quiet && now - join_began_ >= kPatienceWithMain) {
    told_that_it_waits_ = true;
    orders_.push_back({.kind = Order::Kind::kNote,
                       .text = "accelerate launch: waiting for the main machine at " + endpoint() +
                               (last_error_.empty() ? "" : ": " + last_error_) + "\n"});
  }
  const bool hangs = !attempts_.empty() && now - attempt_began_ > kPatienceWithConnect;
  if (hangs) last_error_ = "no answer";
  if (hangs || (attempts_.empty() && now >= next_try_)) connect_again();
}

void MemberControl::give_up_joining() {
  if (give_up_ == GiveUp::kIsTold) {
    gave_up_ = true;
    state_ = State::kFinished;
    attempts_.clear();
    return;
  }
  // Behind ssh or srun nobody gave the launchers flags.
  std::string hint =
      plan_.is_agent ? "look at the output of the first machine; --main_process_ip names another "
                       "address of it"
                     : "check that accelerate launch runs there with --machine_rank 0 and the "
                       "same --main_process_port";
  const bool unreachable = last_error_ == "no answer" || last_error_ == "No route to host" ||
                           last_error_ == "Network is unreachable" ||
                           last_error_ == "Connection timed out";
  if (!main_machine_.addresses) {
    hint = "check --main_process_ip and the name servers of this machine";
  } else if (unreachable) {
    hint = "check --main_process_ip, the network and the firewall between the two";
  }
  finish(kLostMachineExitCode, "error: the main machine did not answer at " + endpoint() +
                                   " within " + describe_duration(plan_.join_timeout) +
                                   (last_error_.empty() ? "" : ": " + last_error_) + "\n" +
                                   (lost_text_.empty() ? "" : "  " + lost_text_ + "\n") +
                                   "  try  " + hint + "\n");
}

std::optional<MemberControl::Clock::time_point> MemberControl::deadline() const {
  if (state_ == State::kMember) {
    return leave_at_ && !running_ ? std::min(next_beat_, *leave_at_) : next_beat_;
  }
  if (state_ == State::kEnding || state_ == State::kFinished) return std::nullopt;
  return Clock::now() + kPauseBetweenTries;
}

}  // namespace accelerate::launch

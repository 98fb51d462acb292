#include "launch/remote/main_control.h"

#include <sys/socket.h>

#include <algorithm>

#include "accelerate/errors.h"
#include "launch/output/failure_report.h"
#include "launch/plan/machine.h"
#include "launch/remote/greeting.h"
#include "launch/remote/network.h"

namespace accelerate::launch {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kPatienceWithMachines{3};
constexpr std::chrono::seconds kPatienceWithGuests{10};  // to say who they are
constexpr size_t kMaxGuests = 256;
// A launcher that is being killed ends its connections before it gives up its port, and it may
// have run on this machine.
constexpr std::chrono::seconds kPatienceWithFormerMain{5};

JobDirector::Loss loss_of(const LineChannel& channel) {
  return channel.was_ended_by_peer() ? JobDirector::Loss::kEnded : JobDirector::Loss::kSilent;
}

// mpirun may start it on another machine, whose ports are not ours to reserve.
bool has_rank_zero_here(const MachinePlan& plan) {
  return plan.launcher != LauncherKind::kMpirun || plan.main_address.empty() ||
         is_own_address(plan.main_address);
}

}  // namespace

MainControl::MainControl(const MachinePlan& plan,
                         const std::optional<JobDirector::Inheritance>& inheritance)
    : plan_(plan),
      director_(
          plan, [this](int attempt) { return port_of_attempt(attempt); }, Clock::now(),
          inheritance) {
  if (plan.num_machines > 1) {
    if (plan.same_network) require_own_address(plan.main_address);
    listener_ =
        listen_everywhere(plan.main_port, inheritance ? kPatienceWithFormerMain : milliseconds(0));
  } else if (plan.main_port == 0) {
    reservation_ = PortReservation::any();
  } else if (has_rank_zero_here(plan)) {
    reservation_ = PortReservation::of(plan.main_port);
  }
  director_.join(0, short_host_name(), plan.main_address);
}

// Each attempt gets a port of its own, so that a worker of an earlier one finds nobody there; but
// the port that the user named for one machine stays.
int MainControl::port_of_attempt(int attempt) {
  const bool named = plan_.num_machines == 1 && plan_.main_port != 0;
  if (named) return plan_.main_port;
  if (attempt > 0 || !reservation_) reservation_ = PortReservation::any();
  return reservation_->port();
}

void MainControl::report(const MachineReport& report) {
  director_.handle(0, report, Clock::now());
  forward_orders();
}

std::optional<Order> MainControl::next_order() {
  forward_orders();
  if (own_orders_.empty()) return std::nullopt;
  Order order = std::move(own_orders_.front());
  own_orders_.pop_front();
  return order;
}

void MainControl::forward_orders() {
  while (auto next = director_.next_order()) {
    auto& [machine, order] = *next;
    if (machine == 0) {
      own_orders_.push_back(std::move(order));
    } else if (const auto member = members_.find(machine); member != members_.end()) {
      member->second.send(order.message());
    }
  }
}

void MainControl::add_descriptors(std::vector<pollfd>& fds) const {
  if (!listener_) return;
  fds.push_back({says_goodbye_ ? -1 : listener_.get(), POLLIN, 0});
  const auto add = [&](const LineChannel& channel) {
    const short events = channel.wants_write() ? POLLIN | POLLOUT : POLLIN;
    fds.push_back({channel.fd(), events, 0});
  };
  for (const LineChannel& guest : guests_) add(guest);
  for (const auto& [machine, member] : members_) add(member);
}

void MainControl::handle_descriptors(const pollfd* fds, size_t count) {
  if (!listener_ || count == 0) return;
  const pollfd* next = fds + 1;
  for (LineChannel& guest : guests_) guest.handle((next++)->revents);
  for (auto& [machine, member] : members_) member.handle((next++)->revents);

  for (auto& [machine, member] : members_) listen_to(machine, member);
  for (LineChannel& guest : guests_) greet(guest);
  std::erase_if(guests_, [](const LineChannel& guest) { return !guest && !guest.wants_write(); });
  drop_lost_members();
  if (fds[0].revents != 0) accept_all();
  forward_orders();
}

// Whoever is no member any more has left the job too, however its connection ended.
void MainControl::drop_lost_members() {
  for (const auto& [machine, member] : members_) {
    if (!member) director_.lose(machine, member.end_reason(), Clock::now(), loss_of(member));
  }
  std::erase_if(members_, [](const auto& member) { return !member.second; });
}

void MainControl::accept_all() {
  while (true) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    UniqueFd socket(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size,
                            SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    if (guests_.size() < kMaxGuests) {
      guests_.emplace_back(std::move(socket), address_text(address));
    }
  }
}

void MainControl::greet(LineChannel& guest) {
  const auto hello = guest.next();
  if (!hello || !guest) return;  // who has hung up already does not take part
  const int machine = static_cast<int>(hello->number("machine"));
  const bool comes_back = hello->name() == "hello" && identities_.count(machine) != 0 &&
                          identities_[machine] == hello->text("identity");
  if (comes_back) {
    director_.lose(machine, "it reconnected", Clock::now());
    members_.erase(machine);
  }
  const std::string reason = refusal(*hello, guest.peer());
  if (!reason.empty()) {
    director_.remember_refusal(reason);
    guest.send(Message("refuse").set("text", reason));
    guest.close();
    return;
  }
  guest.send(Message("welcome"));
  identities_[machine] = hello->text("identity");
  members_[machine] = std::move(guest);
  guest = LineChannel();
  director_.join(machine, hello->text("host"), members_[machine].peer());
}

std::string MainControl::refusal(const Message& hello, const std::string& peer) const {
  if (hello.name() != "hello" || hello.number("version") != kProtocolVersion) {
    return peer + " speaks another version of accelerate launch";
  }
  const std::string who =
      "machine " + hello.text("machine") + " (" + hello.text("host") + ", " + peer + ") ";
  const auto differs = [&](const char* key, int64_t own, const char* flag) -> std::string {
    if (hello.number(key) == own) return "";
    return who + "was started with " + flag + " " + hello.text(key) + ", the main machine with " +
           std::to_string(own);
  };
  if (auto text = differs("machines", plan_.num_machines, "--num_machines"); !text.empty()) {
    return text;
  }
  if (auto text = differs("processes", plan_.num_processes, "--num_processes"); !text.empty()) {
    return text;
  }
  if (auto text = differs("min_machines", plan_.min_machines, "--min_machines"); !text.empty()) {
    return text;
  }
  const int64_t machine = hello.number("machine");
  if (machine == 0) return who + "claims --machine_rank 0, which is the main machine";
  if (machine < 0 || machine >= plan_.num_machines)
    return who + "has a --machine_rank out of range";
  if (hello.has("run") && hello.text("run") != plan_.run_id) {
    return who + "belongs to job " + hello.text("run") + ", the main machine to " + plan_.run_id;
  }
  const auto present = members_.find(static_cast<int>(machine));
  if (present != members_.end()) {
    return who + "claims --machine_rank " + std::to_string(machine) + ", which " +
           present->second.peer() + " has already";
  }
  return "";
}

void MainControl::listen_to(int machine, LineChannel& channel) {
  while (const auto message = channel.next()) {
    if (const auto report = MachineReport::from(*message)) {
      director_.handle(machine, *report, Clock::now());
    }
  }
  if (channel.end_reason().empty()) return;
  director_.lose(machine, channel.end_reason(), Clock::now(), loss_of(channel));
}

void MainControl::handle_time() {
  const auto now = Clock::now();
  director_.handle_time(now);
  if (listener_ && now >= next_beat_) {
    next_beat_ = now + plan_.beat_interval();
    for (auto& [machine, member] : members_) {
      member.send(Message("alive"));
      if (now - member.last_heard() <= plan_.machine_timeout) continue;
      director_.lose(machine, "no sign of life for " + describe_duration(plan_.machine_timeout),
                     now, JobDirector::Loss::kSilent);
      member.close();
    }
    for (LineChannel& guest : guests_) {
      if (now - guest.last_heard() > kPatienceWithGuests) guest.close();
    }
    tell_who_is_missing(now);
  }
  forward_orders();
}

void MainControl::tell_who_is_missing(Clock::time_point now) {
  const bool waiting = director_.deadline().has_value() && !director_.missing_machines().empty();
  if (!waiting || told_who_is_missing_ || plan_.quiet || now - began_ < kPatienceWithMachines)
    return;
  told_who_is_missing_ = true;
  own_orders_.push_back({.kind = Order::Kind::kNote,
                         .text = "accelerate launch: waiting at " + plan_.main_address + ":" +
                                 std::to_string(plan_.main_port) + " for " +
                                 list_machines(director_.missing_machines()) + " of " +
                                 std::to_string(plan_.num_machines) + "\n"});
}

std::optional<MainControl::Clock::time_point> MainControl::deadline() const {
  if (!listener_) return director_.deadline();
  return std::min(next_beat_, director_.deadline().value_or(next_beat_));
}

void MainControl::begin_farewell() {
  says_goodbye_ = true;
  guests_.clear();
  for (auto& [machine, member] : members_) member.end_sending();
}

bool MainControl::wants_flush() const {
  return std::any_of(members_.begin(), members_.end(), [&](const auto& member) {
    return says_goodbye_ ? static_cast<bool>(member.second) : member.second.wants_write();
  });
}

}  // namespace accelerate::launch

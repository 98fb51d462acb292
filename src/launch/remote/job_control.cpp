#include "launch/remote/job_control.h"

#include <algorithm>
#include <sstream>
#include <utility>

namespace accelerate::launch {
namespace {

constexpr const char* kOrderNames[] = {"start", "stop", "kill", "note", "finish"};
constexpr const char* kEventNames[] = {"failed", "ended", "signal"};

template <typename Kind, size_t count>
std::optional<Kind> kind_named(const char* const (&names)[count], const std::string& name) {
  const auto found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names)) return std::nullopt;
  return static_cast<Kind>(found - std::begin(names));
}

// Only the first failure is shown with its last lines, so only a message of that carries them.
Message end_message(const WorkerEnd& end, bool with_lines) {
  Message message("end");
  message.set("rank", end.rank)
      .set("host", end.host)
      .set("pid", end.pid)
      .set("status", end.wait_status)
      .set("after", end.after.count())
      .set("fate", static_cast<int64_t>(end.fate))
      .set("unasked", end.unasked)
      .set("exception", end.exception)
      .set("error", end.error);
  if (with_lines) {
    message.set("lines", std::vector<std::string>(end.last_lines.begin(), end.last_lines.end()));
  }
  return message;
}

std::optional<WorkerEnd> worker_end_from(const std::string& text) {
  const auto message = Message::decode(text);
  if (!message || message->name() != "end") return std::nullopt;
  const int64_t fate = message->number("fate");
  if (fate < 0 || fate > static_cast<int64_t>(WorkerFate::kKilled)) return std::nullopt;
  const std::vector<std::string> lines = message->texts("lines");
  return WorkerEnd{.rank = static_cast<int>(message->number("rank")),
                   .host = message->text("host"),
                   .pid = static_cast<pid_t>(message->number("pid")),
                   .wait_status = static_cast<int>(message->number("status")),
                   .after = std::chrono::milliseconds(message->number("after")),
                   .fate = static_cast<WorkerFate>(fate),
                   .unasked = message->number("unasked") != 0,
                   .exception = message->text("exception"),
                   .error = message->text("error"),
                   .last_lines = {lines.begin(), lines.end()}};
}

}  // namespace

Message Order::message() const {
  Message message(kOrderNames[static_cast<size_t>(kind)]);
  message.set("attempt", attempt)
      .set("address", main_address)
      .set("port", main_port)
      .set("run", run_id)
      .set("machines", machines)
      .set("place", place)
      .set("signal", signal)
      .set("code", exit_code)
      .set("text", text);
  std::vector<std::string> entries;
  for (const RosterEntry& entry : roster) {
    entries.push_back(std::to_string(entry.machine) + " " + entry.address);
  }
  if (!entries.empty()) message.set("roster", entries);
  return message;
}

std::optional<Order> Order::from(const Message& message) {
  const auto kind = kind_named<Kind>(kOrderNames, message.name());
  if (!kind) return std::nullopt;
  Roster roster;
  for (const std::string& text : message.texts("roster")) {
    RosterEntry entry;
    if (!(std::istringstream(text) >> entry.machine >> entry.address)) return std::nullopt;
    roster.push_back(std::move(entry));
  }
  return Order{.kind = *kind,
               .attempt = static_cast<int>(message.number("attempt")),
               .main_address = message.text("address"),
               .main_port = static_cast<int>(message.number("port")),
               .run_id = message.text("run"),
               .machines = static_cast<int>(message.number("machines")),
               .place = static_cast<int>(message.number("place")),
               .roster = std::move(roster),
               .signal = static_cast<int>(message.number("signal")),
               .exit_code = static_cast<int>(message.number("code")),
               .text = message.text("text")};
}

Message MachineReport::message() const {
  std::vector<std::string> encoded;
  for (const WorkerEnd& end : ends) {
    encoded.push_back(end_message(end, kind == Kind::kFailed).encode());
  }
  Message message(kEventNames[static_cast<size_t>(kind)]);
  message.set("attempt", attempt)
      .set("signal", signal)
      .set("ends", encoded)
      .set("grace", grace.count());
  return message;
}

std::optional<MachineReport> MachineReport::from(const Message& message) {
  const auto kind = kind_named<Kind>(kEventNames, message.name());
  if (!kind) return std::nullopt;
  MachineReport report{.kind = *kind,
                       .attempt = static_cast<int>(message.number("attempt")),
                       .signal = static_cast<int>(message.number("signal")),
                       .grace = std::chrono::milliseconds(message.number("grace"))};
  for (const std::string& encoded : message.texts("ends")) {
    auto end = worker_end_from(encoded);
    if (!end) return std::nullopt;
    report.ends.push_back(std::move(*end));
  }
  return report;
}

}  // namespace accelerate::launch

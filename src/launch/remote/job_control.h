// Orders to a machine and what it reports: the seam between running workers and deciding about
// them.
#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launch/plan/launch_outcome.h"
#include "launch/remote/message.h"

namespace accelerate::launch {

// The machines of an attempt: the number that each was started with, and where it can be reached.
// The first one is the main machine.
struct RosterEntry {
  int machine = 0;
  std::string address{};
};
using Roster = std::vector<RosterEntry>;

// What a machine is told to do.
struct Order {
  enum class Kind {
    kStart,   // begin attempt `attempt`
    kStop,    // end its workers: `signal` was sent to a launcher, or (0) a worker failed elsewhere
    kKill,    // without further patience
    kNote,    // tell the user `text`
    kFinish,  // the job is over: write `text` to the user and exit with `exit_code`
  };
  Kind kind = Kind::kFinish;
  int attempt = 0;
  std::string main_address{};  // kStart: where rank 0 serves the rendezvous
  int main_port = 0;
  std::string run_id{};
  // kStart: how many machines take part, and the place of this one among them. 0: as planned.
  int machines = 0;
  int place = 0;
  Roster roster{};  // kStart, of a job with a range of machines
  int signal = 0;
  int exit_code = 0;
  std::string text{};

  Message message() const;
  static std::optional<Order> from(const Message& message);
};

// What a machine reports of its workers.
struct MachineReport {
  enum class Kind {
    kFailed,  // the first of its workers failed: ends holds it
    kEnded,   // no worker of the attempt is left: ends holds all
    kSignal,  // its launcher was told to stop, by `signal`; once more: at once
  };
  Kind kind = Kind::kEnded;
  int attempt = 0;
  int signal = 0;
  std::vector<WorkerEnd> ends{};
  std::chrono::milliseconds grace{0};

  Message message() const;
  static std::optional<MachineReport> from(const Message& message);
};

// Where the launcher of a machine gets its orders. Driven by an event loop, never blocks.
class JobControl {
 public:
  virtual ~JobControl() = default;

  virtual void report(const MachineReport& report) = 0;
  // The next order, or nothing for now. After kFinish there is none.
  virtual std::optional<Order> next_order() = 0;

  virtual void add_descriptors(std::vector<pollfd>& fds) const = 0;
  virtual void handle_descriptors(const pollfd* fds, size_t count) = 0;
  virtual void handle_time() = 0;
  virtual std::optional<std::chrono::steady_clock::time_point> deadline() const = 0;

  // Called once, after kFinish: from now on nothing is said or asked anew.
  virtual void begin_farewell() {}
  // True until all that was reported or ordered has reached the other machines, as far as they can
  // be told from here. The event loop goes on until then, within limits.
  virtual bool wants_flush() const { return false; }
};

}  // namespace accelerate::launch

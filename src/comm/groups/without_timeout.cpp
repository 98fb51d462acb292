#include <ATen/ops/full.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "accelerate/communicator.h"
#include "accelerate/errors.h"
#include "accelerate/process_control.h"
#include "comm/agreement.h"
#include "comm/groups/communicator_impl.h"

namespace accelerate {
namespace {

constexpr const char* kName = "without_timeout";
constexpr std::chrono::milliseconds kBeat{500};

// Tells the other ranks every now and then that this one is still at work, until none is.
class Heartbeat {
 public:
  explicit Heartbeat(Communicator& ranks) : ranks_(ranks) {}

  void set_done(bool well) {
    const std::lock_guard lock(mutex_);
    done_ = true;
    well_ = well;
    changed_.notify_all();
  }

  void run() {
    while (!all_are_done(wait_for_beat())) {
    }
  }
  // After run(): whether the work of all ranks ended well. The same on all.
  bool all_ended_well() const { return all_well_; }

 private:
  // Whether this rank is done.
  bool wait_for_beat() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kBeat, [&] { return done_; });
  }

  bool all_are_done(bool own) {
    at::Tensor ends = at::full({2}, own ? 1 : 0, at::kInt);
    if (own && !well_) ends[1] = 0;
    ranks_.all_reduce(ends, ReduceOp::kMin);
    all_well_ = ends[1].item<int>() == 1;
    return ends[0].item<int>() == 1;
  }

  Communicator& ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  bool well_ = true;       // read once it is done
  bool all_well_ = false;  // of the thread that beats
};

// What the ranks throw whose own work went well.
[[noreturn]] void tell_of_failed_work(const Communicator& ranks, const comm::RankFailure& failure) {
  const std::string name = "rank " + std::to_string(failure.rank);
  CommError error({.what = "the work of " + name + " failed: " + failure.info.what,
                   .where = kName,
                   .hint = "see the message of " + name});
  detail::stamp(error, ranks);
  throw error;
}

}  // namespace

void without_timeout(Communicator& communicator, const std::function<void()>& work) {
  if (communicator.world_size() == 1) return work();
  Heartbeat heartbeat(communicator);
  std::exception_ptr lost;
  const auto beat = [&] {
    try {
      heartbeat.run();
    } catch (...) {
      lost = std::current_exception();
    }
  };
  std::optional<std::thread> thread;
  try {
    thread.emplace(beat);
  } catch (const std::system_error&) {
    thread.reset();  // no thread to be had: the others learn of this rank when it is done
  }
  std::exception_ptr own;
  try {
    work();
  } catch (...) {
    own = std::current_exception();
  }
  heartbeat.set_done(own == nullptr);
  // From here on this rank waits, though each exchange is short: the board shows it as one wait.
  comm::CollectiveLog& log = comm::impl_of(communicator).log();
  const comm::CollectiveLog::Wait wait = log.begin_wait(kName);
  if (thread) {
    thread->join();
  } else {
    beat();
  }
  log.end_wait(wait);
  if (lost) std::rethrow_exception(lost);
  if (heartbeat.all_ended_well()) return;
  comm::together(communicator,
                 [&] {
                   if (own) std::rethrow_exception(own);
                 },
                 {.keep_own = true, .retell = tell_of_failed_work});
}

}  // namespace accelerate

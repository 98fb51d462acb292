#include <ATen/ops/full.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "accelerate/communicator.h"
#include "accelerate/log.h"
#include "accelerate/process_control.h"
#include "comm/communicator_impl.h"

namespace accelerate {
namespace {

constexpr std::chrono::milliseconds kBeat{500};

// Tells the other ranks every now and then that this one is still at work, until none is.
class Heartbeat {
 public:
  explicit Heartbeat(Communicator& ranks) : ranks_(ranks) {}

  void set_done() {
    const std::lock_guard lock(mutex_);
    done_ = true;
    done_since_ = Clock::now();
    changed_.notify_all();
  }

  void run() {
    while (!all_are_done(wait_for_beat())) tell_of_long_wait();
  }

 private:
  using Clock = std::chrono::steady_clock;

  // The peer watch sees short exchanges only.
  void tell_of_long_wait() {
    const std::lock_guard lock(mutex_);
    if (!done_ || Clock::now() - done_since_ < next_notice_) return;
    const auto waited =
        std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - done_since_);
    log(LogLevel::kWarning, "waiting for other ranks since " + std::to_string(waited.count()) +
                                " s: " + ranks_.impl().log().latest().operation);
    next_notice_ *= comm::PeerWatch::kNoticeFactor;
  }

  // Whether this rank is done.
  bool wait_for_beat() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kBeat, [&] { return done_; });
  }

  bool all_are_done(bool own) {
    at::Tensor done = at::full({1}, own ? 1 : 0, at::kInt);
    ranks_.all_reduce(done, ReduceOp::kMin);
    return done.item<int>() == 1;
  }

  Communicator& ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  Clock::time_point done_since_;
  std::chrono::seconds next_notice_ = comm::PeerWatch::kFirstNotice;
};

std::exception_ptr error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

void without_timeout(Communicator& communicator, const std::function<void()>& work) {
  if (communicator.world_size() == 1) return work();
  Heartbeat heartbeat(communicator);
  std::exception_ptr lost;
  const auto beat = [&] { lost = error_of([&] { heartbeat.run(); }); };
  std::optional<std::thread> thread;
  try {
    thread.emplace(beat);
  } catch (const std::system_error&) {
    thread.reset();  // no thread to be had: the others learn of this rank when it is done
  }
  const std::exception_ptr own = error_of(work);
  heartbeat.set_done();
  if (thread) {
    thread->join();
  } else {
    beat();
  }
  if (lost) std::rethrow_exception(lost);
  if (own) std::rethrow_exception(own);
}

}  // namespace accelerate

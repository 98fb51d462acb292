// Threads that make batches ahead of the loop. Internal: users do not call it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "accelerate/detail/feed.h"
#include "accelerate/export.h"
#include "accelerate/loader_options.h"

namespace accelerate::detail {

// Makes the calling thread one that reads data: it gets no signals of the program, and operations
// on tensors stay inside it instead of waking threads that the training needs.
ACCELERATE_EXPORT void enter_worker_thread();

// Throws UsageError.
[[noreturn]] ACCELERATE_EXPORT void throw_too_many_workers(int workers, const char* why);

// `workers` threads draw and build batches, at most workers * prefetch of them ahead of the loop,
// which gets them in the order in which they were drawn. An exception of a
// worker comes out of next() in the place of its batch. The destructor waits for what the workers
// are doing at that moment: one get() or get_batch() each, one round of a stream. A stream that
// blocks in next() forever is waited for.
template <class Maker>
class WorkerFeed final : public Feed<typename Maker::Value> {
 public:
  using Value = typename Maker::Value;

  WorkerFeed(Maker maker, int workers, int prefetch)
      : maker_(std::move(maker)),
        slots_(static_cast<size_t>(workers) * static_cast<size_t>(prefetch)) {
    threads_.reserve(static_cast<size_t>(workers));
    try {
      for (int i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      shut_down();
      throw_too_many_workers(workers, error.what());
    } catch (...) {
      shut_down();
      throw;
    }
  }
  ~WorkerFeed() override { shut_down(); }
  WorkerFeed(const WorkerFeed&) = delete;
  WorkerFeed& operator=(const WorkerFeed&) = delete;

  bool next(Produced<Value>& batch) override {
    std::unique_lock lock(mutex_);
    Slot& slot = slot_of(taken_);
    if (!slot.ready) {
      waited_for_ = taken_;
      ready_.wait(lock, [&] { return slot.ready; });
      waited_for_ = -1;
    }
    if (slot.error) std::rethrow_exception(slot.error);  // stays there: the pass is over
    if (!slot.batch) return false;
    batch = std::move(*slot.batch);
    slot = Slot{};
    ++taken_;
    // Workers are woken when half of the slots are free: a wake-up for each batch would cost more
    // than a small batch does.
    const bool wake = idle_ > 0 && 2 * (drawn_ - taken_) <= static_cast<int64_t>(slots_.size());
    lock.unlock();
    if (wake) free_.notify_all();
    return true;
  }

 private:
  struct Slot {
    bool ready = false;
    std::optional<Produced<Value>> batch{};  // empty: the end of the pass, or an error
    std::exception_ptr error{};
  };

  Slot& slot_of(int64_t ticket) { return slots_[static_cast<size_t>(ticket) % slots_.size()]; }

  void work() {
    enter_worker_thread();
    while (true) {
      typename Maker::Draft draft{};
      int64_t ticket = 0;
      Slot result;
      {
        const std::lock_guard turn(draw_mutex_);
        if (!claim(ticket)) return;
        result = attempt([&]() -> std::optional<Produced<Value>> {
          drawn_last_ = !maker_.draw(draft);
          return std::nullopt;
        });
        if (result.error) drawn_last_ = true;
        if (drawn_last_) {
          publish(ticket, std::move(result));
          return;
        }
      }
      publish(ticket, attempt([&]() -> std::optional<Produced<Value>> {
                return maker_.build(std::move(draft), stop_);
              }));
    }
  }

  // Waits for a free slot; false when there is nothing left to do. Holds draw_mutex_.
  bool claim(int64_t& ticket) {
    std::unique_lock lock(mutex_);
    const auto has_room = [&] {
      return stop_.load() || drawn_ - taken_ < static_cast<int64_t>(slots_.size());
    };
    if (!has_room()) {
      ++idle_;
      free_.wait(lock, has_room);
      --idle_;
    }
    if (stop_.load() || drawn_last_) return false;
    ticket = drawn_++;
    return true;
  }

  template <class Step>
  static Slot attempt(Step step) {
    Slot slot;
    try {
      slot.batch = step();
    } catch (...) {
      slot.error = std::current_exception();
    }
    return slot;
  }

  void publish(int64_t ticket, Slot result) {
    bool wake = false;
    {
      const std::lock_guard lock(mutex_);
      result.ready = true;
      slot_of(ticket) = std::move(result);
      wake = waited_for_ == ticket;
    }
    if (wake) ready_.notify_one();
  }

  void shut_down() {
    {
      const std::lock_guard lock(mutex_);
      stop_.store(true);
    }
    free_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  Maker maker_;
  std::mutex draw_mutex_;  // before mutex_
  std::mutex mutex_;
  std::condition_variable ready_, free_;
  std::vector<Slot> slots_;  // ticket t lies in slot t mod size
  int64_t drawn_ = 0;
  int64_t taken_ = 0;
  int64_t waited_for_ = -1;
  int idle_ = 0;
  bool drawn_last_ = false;  // under draw_mutex_
  StopFlag stop_{false};
  std::vector<std::thread> threads_;
};

// The batches of `maker`, made ahead of the loop where the options ask for workers.
template <class Maker>
std::unique_ptr<Feed<typename Maker::Value>> start_feed(Maker maker, const LoaderOptions& options) {
  if (options.num_workers == 0) return std::make_unique<DirectFeed<Maker>>(std::move(maker));
  return std::make_unique<WorkerFeed<Maker>>(std::move(maker), options.num_workers,
                                             options.prefetch);
}

}  // namespace accelerate::detail

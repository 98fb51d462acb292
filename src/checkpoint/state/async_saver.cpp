#include "checkpoint/state/async_saver.h"

#include <sys/resource.h>
#include <unistd.h>

#include <string>
#include <system_error>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "tensor/serial_thread.h"

namespace accelerate::checkpoint {
namespace {

// A tenth of the weight of the training where both want the same core, and enough to get on.
constexpr int kNice = 10;

void yield_to_training() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);  // of this thread alone
  make_thread_serial();
}

}  // namespace

AsyncSaver::~AsyncSaver() {
  wait();
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }
  const std::exception_ptr failed = error();
  if (!failed || error_is_seen()) return;
  try {
    std::rethrow_exception(failed);
  } catch (const std::exception& known) {
    log(LogLevel::kError, std::string("the last checkpoint was not saved: ") + known.what());
  } catch (...) {
    log(LogLevel::kError, "the last checkpoint was not saved");
  }
}

void AsyncSaver::prepare() {
  if (thread_.joinable()) return;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw CheckpointError(
        {.what = std::string("the writer thread cannot be started: ") + error.what(),
         .where = "save_state",
         .hint = "raise the limits of the process, or save without .async"});
  }
}

void AsyncSaver::run() {
  yield_to_training();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopped_ || next_; });
    if (stopped_) return;
    std::function<void()> job = std::exchange(next_, nullptr);
    lock.unlock();
    job();
    lock.lock();
  }
}

void AsyncSaver::save(SaveTicket::State& state, std::function<void()> write) {
  std::exception_ptr error;
  try {
    write();
  } catch (...) {
    error = std::current_exception();
  }
  write = nullptr;  // lets the copies go before anybody is told
  const std::lock_guard lock(state.mutex);
  state.error = error;
  state.done = true;
  state.changed.notify_all();
}

bool AsyncSaver::busy() const {
  if (!last_) return false;
  const std::lock_guard lock(last_->mutex);
  return !last_->done;
}

void AsyncSaver::wait() {
  if (!last_) return;
  std::unique_lock lock(last_->mutex);
  last_->changed.wait(lock, [&] { return last_->done; });
}

std::exception_ptr AsyncSaver::error() const {
  if (!last_) return nullptr;
  const std::lock_guard lock(last_->mutex);
  return last_->error;
}

bool AsyncSaver::error_is_seen() const {
  if (!last_) return false;
  const std::lock_guard lock(last_->mutex);
  return last_->error_seen;
}

void AsyncSaver::set_error_seen() {
  if (!last_) return;
  const std::lock_guard lock(last_->mutex);
  last_->error_seen = true;
}

SaveTicket AsyncSaver::start(const std::filesystem::path& directory, std::function<void()> write) {
  wait();
  last_ = std::make_shared<SaveTicket::State>();
  last_->directory = directory;
  const std::lock_guard lock(mutex_);
  next_ = [state = last_, write = std::move(write)]() mutable {
    save(*state, std::exchange(write, nullptr));
  };
  changed_.notify_all();
  return SaveTicket(last_);
}

SaveTicket AsyncSaver::finished(const std::filesystem::path& directory) {
  auto state = std::make_shared<SaveTicket::State>();
  state->directory = directory;
  state->done = true;
  return SaveTicket(std::move(state));
}

}  // namespace accelerate::checkpoint

#include "checkpoint/async_saver.h"

#include <sys/resource.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "accelerate/log.h"
#include "compat/serial_thread.h"

namespace accelerate::checkpoint {
namespace {

// A tenth of the weight of the training where both want the same core, and enough to get on.
constexpr int kNice = 10;

void yield_to_training() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);  // of this thread alone
  compat::make_thread_serial();
}

}  // namespace

AsyncSaver::~AsyncSaver() {
  wait();
  const std::exception_ptr error = take_error();
  if (!error) return;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    log(LogLevel::kError, std::string("the last checkpoint was not saved: ") + known.what());
  } catch (...) {
    log(LogLevel::kError, "the last checkpoint was not saved");
  }
}

bool AsyncSaver::busy() const {
  if (!last_) return false;
  const std::lock_guard lock(last_->mutex);
  return !last_->done;
}

void AsyncSaver::wait() {
  if (thread_.joinable()) thread_.join();
}

std::exception_ptr AsyncSaver::take_error() {
  if (!last_) return nullptr;
  const std::lock_guard lock(last_->mutex);
  if (std::exchange(last_->error_seen, true)) return nullptr;
  return last_->error;
}

SaveTicket AsyncSaver::start(const std::filesystem::path& directory, std::function<void()> write) {
  wait();
  last_ = std::make_shared<SaveTicket::State>();
  last_->directory = directory;
  thread_ = std::thread([state = last_, write = std::move(write)]() mutable {
    yield_to_training();
    std::exception_ptr error;
    try {
      write();
    } catch (...) {
      error = std::current_exception();
    }
    write = nullptr;  // lets the copies go before anybody is told
    const std::lock_guard lock(state->mutex);
    state->error = error;
    state->done = true;
    state->changed.notify_all();
  });
  return SaveTicket(last_);
}

SaveTicket finished_ticket(const std::filesystem::path& directory) {
  auto state = std::make_shared<SaveTicket::State>();
  state->directory = directory;
  state->done = true;
  return SaveTicket(std::move(state));
}

}  // namespace accelerate::checkpoint

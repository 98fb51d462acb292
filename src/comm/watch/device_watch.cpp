#include "comm/watch/device_watch.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

namespace accelerate::comm {
namespace {

using SteadyClock = std::chrono::steady_clock;

bool has_rung(const Alarm& alarm) {
  try {
    alarm.require_silence();
    return false;
  } catch (const std::exception&) {
    return true;
  }
}

}  // namespace

DeviceWatch::DeviceWatch(std::shared_ptr<device::ExchangeControl> control,
                         std::shared_ptr<Alarm> alarm, std::shared_ptr<CollectiveLog> log,
                         OnTrouble on_trouble)
    : control_(std::move(control)),
      alarm_(std::move(alarm)),
      log_(std::move(log)),
      on_trouble_(std::move(on_trouble)),
      begun_at_first_(control_->progress().begun) {
  log_->follow_device();
  control_->listen([log = log_, begun = begun_](const device::ExchangeControl::Begun& exchange) {
    const uint32_t operation = exchange_number(exchange.name, exchange.bytes, exchange.root);
    begun->add(exchange.number, log->exchange_on_device(operation, exchange.number));
  });
  registration_ =
      alarm_->listen([control = control_](const std::exception_ptr&) { control->abort(); });
  thread_ = std::thread([this] { run(); });
}

DeviceWatch::~DeviceWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  control_->listen(nullptr);
  end_shown();
  log_->set_on_device(0);
}

bool DeviceWatch::finish(std::chrono::milliseconds limit) noexcept {
  constexpr std::chrono::milliseconds kPause{2};
  const auto give_up = SteadyClock::now() + limit;
  while (!has_rung(*alarm_)) {
    if (control_->progress().is_idle()) return true;
    if (SteadyClock::now() >= give_up) {
      control_->abort();
      return false;
    }
    std::this_thread::sleep_for(kPause);
  }
  return false;
}

bool DeviceWatch::was_used() const noexcept {
  return control_->progress().begun != begun_at_first_;
}

void DeviceWatch::run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kPollInterval, [this] { return stopping_; })) {
    lock.unlock();
    look();
    lock.lock();
  }
}

void DeviceWatch::Begun::add(int64_t number, const Event& exchange) {
  const std::lock_guard lock(mutex_);
  entries_[next_] = {.number = number, .exchange = exchange};
  next_ = (next_ + 1) % kMost;
}

std::optional<Event> DeviceWatch::Begun::first_after(int64_t ended) const {
  const std::lock_guard lock(mutex_);
  const Entry* first = nullptr;
  bool is_complete = false;  // nothing between `ended` and the first has been forgotten
  for (const Entry& entry : entries_) {
    if (entry.number <= ended) {  // or never written
      is_complete = true;
    } else if (first == nullptr || entry.number < first->number) {
      first = &entry;
    }
  }
  return first != nullptr && is_complete ? std::optional(first->exchange) : std::nullopt;
}

void DeviceWatch::end_shown() {
  if (shown_) log_->end_wait(*shown_);
  shown_.reset();
}

void DeviceWatch::look() {
  const device::ExchangeControl::Progress progress = control_->progress();
  const bool has_moved = was_idle_ || progress.ended != ended_;
  if (has_moved || progress.is_idle()) end_shown();
  if (progress.is_idle()) {
    log_->set_on_device(0);
  } else if (const auto oldest = begun_->first_after(progress.ended)) {
    oldest_ = std::max<int64_t>(1, oldest->number);
    log_->set_on_device(oldest_);
    if (!has_moved && !shown_) shown_ = log_->show_exchange(*oldest);
  } else if (has_moved) {
    // The host is far ahead: from here on the number stays until the device has moved on.
    oldest_ = std::max<int64_t>(1, log_->latest().sequence);
    log_->set_on_device(oldest_);
  }
  was_idle_ = progress.is_idle();
  ended_ = progress.ended;
  if (told_) return;
  const std::string cause = control_->trouble();
  if (cause.empty()) return;
  told_ = true;
  on_trouble_(oldest_, cause);
}

}  // namespace accelerate::comm

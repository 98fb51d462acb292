#include "comm/collective_log.h"

#include <sstream>

namespace accelerate::comm {

std::string CollectiveRecord::encode() const {
  return std::to_string(sequence) + (finished ? " 1 " : " 0 ") + operation;
}

CollectiveRecord CollectiveRecord::decode(const std::string& text) {
  CollectiveRecord record;
  std::istringstream in(text);
  in >> record.sequence >> record.finished;
  in.get();  // the blank before the operation
  std::getline(in, record.operation);
  return record;
}

int64_t CollectiveLog::begin(const std::string& operation) {
  const std::lock_guard lock(mutex_);
  latest_.operation =
      activity_.empty() || activity_ == operation ? operation : activity_ + " (" + operation + ")";
  latest_.finished = false;
  return ++latest_.sequence;
}

void CollectiveLog::end() {
  const std::lock_guard lock(mutex_);
  latest_.finished = true;
}

CollectiveRecord CollectiveLog::latest() const {
  const std::lock_guard lock(mutex_);
  return latest_;
}

void CollectiveLog::enter(const std::string& activity) {
  const std::lock_guard lock(mutex_);
  if (depth_++ == 0) activity_ = activity;
}

void CollectiveLog::leave() {
  const std::lock_guard lock(mutex_);
  if (--depth_ == 0) activity_.clear();
}

int64_t CollectiveLog::begin_exchange() {
  const std::lock_guard lock(mutex_);
  exchanges_.emplace(next_exchange_, Clock::now());
  return next_exchange_++;
}

void CollectiveLog::end_exchange(int64_t number) {
  const std::lock_guard lock(mutex_);
  exchanges_.erase(number);
}

std::optional<CollectiveLog::Clock::time_point> CollectiveLog::waiting_since() const {
  const std::lock_guard lock(mutex_);
  if (exchanges_.empty()) return std::nullopt;
  return exchanges_.begin()->second;  // numbers grow with time
}

}  // namespace accelerate::comm

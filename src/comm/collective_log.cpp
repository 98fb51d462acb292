#include "comm/collective_log.h"

#include <sstream>
#include <utility>

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

int64_t CollectiveLog::begin(std::string operation) {
  const std::lock_guard lock(mutex_);
  latest_.operation = std::move(operation);
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

}  // namespace accelerate::comm

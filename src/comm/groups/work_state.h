// The state behind Work.
#pragma once

#include <exception>
#include <functional>
#include <memory>

#include "accelerate/communicator.h"
#include "accelerate/work.h"
#include "base/events.h"
#include "device/collectives.h"

namespace accelerate {

class Work::State {
 public:
  // `finish` runs in wait(), after `work` has ended well; both keep the tensors that they need.
  State(std::shared_ptr<Communicator::Impl> group, const Event& begun,
        device::CollectiveWorkPtr work, std::function<void()> finish);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void wait();
  bool done() const;

 private:
  const std::shared_ptr<Communicator::Impl> group_;
  const Event begun_;
  device::CollectiveWorkPtr work_;  // null once it was waited for
  std::function<void()> finish_;
  std::exception_ptr error_;  // of wait()
};

}  // namespace accelerate

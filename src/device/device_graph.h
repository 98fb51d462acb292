// Recorded work of a device as the rest of the library sees it.
#pragma once

#include <functional>
#include <memory>

namespace accelerate::device {

// One recorded sequence of work on a device. Not copied; belongs to the device that was current.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Records what `body` queues on the current stream of this thread, without running it. Passes on
  // what `body` throws and what the driver refuses; the graph is then unusable.
  virtual void record(const std::function<void()>& body) = 0;
  // Queues the recorded work on the current stream.
  virtual void replay() = 0;
};

}  // namespace accelerate::device

// Says that a group has ended, to everyone who waits for one of its collectives.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace accelerate::comm {

// Rings at most once in the life of a group. All members may be called from any thread.
class Alarm {
 public:
  using Listener = std::function<void(const std::exception_ptr& why)>;

  // Who holds it is called. A call that is under way when it is let go goes on.
  using Registration = std::shared_ptr<const Listener>;

  // As long as the result is held, `listener` is called once, by whoever rings; at once if that was
  // before. It must neither throw nor wait for another rank.
  [[nodiscard]] Registration listen(Listener listener);

  // Throws what the listeners are called with, if it has rung.
  void require_silence() const;

  // Calls the listeners with an error of the kind that c10d reports lost peers with, and returns
  // when they are done. Does nothing if the alarm has rung.
  void ring(const std::string& why);

 private:
  mutable std::mutex mutex_;
  std::exception_ptr why_;  // null until it rings
  std::vector<std::weak_ptr<const Listener>> listeners_;
};

}  // namespace accelerate::comm

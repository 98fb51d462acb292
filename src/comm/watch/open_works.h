// Works that nobody has waited for yet.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace accelerate::comm {

// A backend that only orders streams does not say when an exchange is over, and the program may
// never ask. So the watch asks the work, where it would otherwise blame somebody for it. Any
// thread.
class OpenWorks {
 public:
  // Whether the exchange is over. Called by any thread, but not after remove(); must not wait.
  using IsOver = std::function<bool()>;

  void add(int64_t collective, IsOver is_over) {
    const std::lock_guard lock(mutex_);
    works_.push_back({.collective = collective, .is_over = std::move(is_over)});
  }
  // Before the work goes or is waited for. Does nothing if it was found to be over.
  void remove(int64_t collective) {
    const std::lock_guard lock(mutex_);
    std::erase_if(works_, [&](const Entry& work) { return work.collective == collective; });
  }
  // Takes out those that are over: the numbers of their collectives.
  std::vector<int64_t> take_over() {
    const std::lock_guard lock(mutex_);
    std::vector<int64_t> over;
    std::erase_if(works_, [&](const Entry& work) {
      if (!is_over(work)) return false;
      over.push_back(work.collective);
      return true;
    });
    return over;
  }

 private:
  struct Entry {
    int64_t collective = 0;
    IsOver is_over{};
  };

  // One that cannot say is not.
  static bool is_over(const Entry& work) {
    try {
      return work.is_over();
    } catch (const std::exception&) {
      return false;
    }
  }

  std::mutex mutex_;
  std::vector<Entry> works_;
};

}  // namespace accelerate::comm

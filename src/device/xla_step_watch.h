// Whether an XLA device spends its time on compiling, or waits for the host.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace accelerate::device {

// Of the steps of one process. The first steps compile what a training needs: one program for the
// first update, which makes the state of the optimizer, one for all that follow.
class XlaStepWatch {
 public:
  // What counts up: programs that were compiled, and operations that were left to the host.
  struct Counts {
    int64_t compilations = 0;
    std::map<std::string, int64_t> on_the_host{};
  };

  // Programs that were not seen before follow: a model or an optimizer was prepared.
  void expect_programs() { steps_ = 0; }

  // After a step in which `compiled` programs were compiled. Asked for the counts only where that
  // is more than none. Returns what to tell the user.
  template <class CountsOf>
  std::vector<std::string> after_step(int64_t compiled, CountsOf counts) {
    ++steps_;
    if (compiled == 0) return {};
    return report(counts());
  }

 private:
  std::vector<std::string> report(const Counts& counts);

  int64_t steps_ = 0;  // since expect_programs()
  int64_t late_ = 0;   // steps that were compiled anew after the first ones
  std::set<std::string> named_;
};

}  // namespace accelerate::device

// Several ways to do the same, run one after the other again and again.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bench {

struct Contender {
  std::string name;
  // Does the work once and returns the seconds that each of its items (samples, batches) took.
  std::function<double()> run;
};

// The seconds an item that each contender took, run by run.
class Turns {
 public:
  // Runs all of them `repetitions` times in turns, after one run of each that does not count. Each
  // repetition begins with another contender, so that what else happens on the machine and who runs
  // after whom hits all alike.
  Turns(const std::vector<Contender>& contenders, int repetitions);

  // How many times faster than `reference` `tested` is: the median over the repetitions.
  double speed(const std::string& tested, const std::string& reference) const;

  // For each contender {"name", "p50_us", "best_us"} of an item.
  nlohmann::json report() const;

 private:
  const std::vector<double>& times_of(const std::string& name) const;

  std::vector<std::string> names_;
  std::vector<std::vector<double>> times_;
};

// A contender whose time is all that `pass` takes, which returns the number of its items.
Contender timed(std::string name, std::function<int64_t()> pass);

// For parts of a run.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace bench

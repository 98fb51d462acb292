// Keeps the first failing case of a file; the others are counted.
#pragma once

#include <accelerate/errors.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace accelerate::test {

// |a - b| <= absolute + relative * |b|
struct Tolerance {
  double absolute = 0;
  double relative = 0;
};

// Runs on each rank by itself. All cases are run whatever fails, so that the ranks stay in step.
class CaseLog {
 public:
  // Runs `body` for one case, of which `inputs` tells the reader. A CommError ends the whole run.
  template <typename Body>
  void run(const nlohmann::json& inputs, Body body) {
    problem_.clear();
    try {
      body();
    } catch (const CommError&) {
      throw;
    } catch (const std::exception& error) {
      note(std::string("exception: ") + error.what());
    }
    ++cases_;
    if (problem_.empty()) return;
    if (failed_++ == 0) first_ = problem_ + "\n  inputs: " + inputs.dump();
  }

  // Notes a difference in the case that is running; the first one is kept.
  void expect_near(const std::string& what, const std::vector<double>& actual,
                   const std::vector<double>& expected, Tolerance tolerance) {
    const auto fits = [&](double a, double b) {
      if (a == b || (std::isnan(a) && std::isnan(b))) return true;
      return std::abs(a - b) <= tolerance.absolute + tolerance.relative * std::abs(b);
    };
    if (std::ranges::equal(actual, expected, fits)) return;
    note(what + " is " + nlohmann::json(actual).dump() + ", expected " +
         nlohmann::json(expected).dump());
  }
  template <typename T>
  void expect_equal(const std::string& what, const T& actual, const T& expected) {
    if (actual == expected) return;
    note(what + " is " + nlohmann::json(actual).dump() + ", expected " +
         nlohmann::json(expected).dump());
  }
  void note(const std::string& problem) {
    if (problem_.empty()) problem_ = problem;
  }

  // Fails the test once if any case failed, or if there was none.
  void report() const {
    EXPECT_GT(cases_, 0) << "no case was run";
    EXPECT_EQ(failed_, 0) << "of " << cases_ << " cases; the first: " << first_;
  }

 private:
  int cases_ = 0;
  int failed_ = 0;
  std::string problem_, first_;
};

// The cases by the number of ranks that they are for. Fails the test if there are none.
template <class Cases>
std::map<int, std::vector<nlohmann::json>> by_world_size(const Cases& cases) {
  std::map<int, std::vector<nlohmann::json>> sorted;
  for (const nlohmann::json& recorded : cases) {
    sorted[recorded.at("num_processes").get<int>()].push_back(recorded);
  }
  EXPECT_FALSE(sorted.empty()) << "no case is recorded";
  return sorted;
}

// The case without what was recorded: its scalar and object settings.
inline nlohmann::json inputs_of(const nlohmann::json& recorded) {
  nlohmann::json inputs = nlohmann::json::object();
  for (const auto& [key, value] : recorded.items()) {
    if (!value.is_array() && key != "final_params") inputs[key] = value;
  }
  return inputs;
}

}  // namespace accelerate::test

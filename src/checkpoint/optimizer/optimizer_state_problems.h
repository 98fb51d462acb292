// What does not fit when a state is read into an optimizer.
#pragma once

#include <string>
#include <vector>

namespace accelerate {

// Collects what does not fit, so that all of it is told at once.
class StateProblems {
 public:
  void add(const std::string& subject, const std::string& what) {
    lines_.push_back(subject + ": " + what);
  }
  bool empty() const { return lines_.empty(); }

  // Throws CheckpointError if there is any. `optimizer` is the name of its kind.
  void throw_if_any(const std::string& optimizer, const std::string& where) const;

 private:
  std::vector<std::string> lines_;
};

}  // namespace accelerate

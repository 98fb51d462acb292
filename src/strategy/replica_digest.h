// A few numbers by which ranks tell whether they hold the same parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace accelerate {

// Of the parameters of a model: for each the sum of its bits, its sum and its length. Equal
// parameters have equal numbers; others have equal ones by chance only.
class ReplicaDigest {
 public:
  // Reads all parameters once or twice; waits for the device.
  static ReplicaDigest of(const torch::nn::Module& module);
  // Of encode() of another rank. Throws CommError if it is none.
  // Knows no names.
  static ReplicaDigest decode(const std::string& bytes);
  std::string encode() const;
  void take_names(const ReplicaDigest& other) { names_ = other.names_; }

  struct Difference {
    std::string parameter{};
    // So small that it may come from the rounding of another kind of hardware.
    bool is_rounding = false;
  };
  // The parameter that differs most; nothing if all are the same.
  std::optional<Difference> compare(const ReplicaDigest& other) const;

 private:
  struct Numbers {
    int64_t bits = 0;
    double sum = 0;
    double length = 0;
    double scale = 1;      // what a sum of random signs would have: length * sqrt(elements)
    double tolerance = 0;  // relative, by the type
  };
  std::vector<std::string> names_;  // not sent: all ranks have the same
  std::vector<Numbers> numbers_;
};

}  // namespace accelerate

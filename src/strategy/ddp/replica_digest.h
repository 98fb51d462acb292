// A few numbers by which ranks tell whether they hold the same parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/errors.h"

namespace torch::nn {
class Module;
}

namespace accelerate {

class Communicator;

// The sum of the bits of all elements, on their device, which is not waited for. Undefined where
// there are none to be read.
at::Tensor sum_of_bits(const at::Tensor& tensor);

using NamedValues = std::vector<std::pair<std::string, at::Tensor>>;

// Of the parameters of a model, or of other tensors: for each the sum of its bits, its sum and its
// length. Equal parameters have equal numbers; others have equal ones by chance only.
class ReplicaDigest {
 public:
  // Reads all parameters once or twice; waits for the device.
  static ReplicaDigest of(const torch::nn::Module& module);
  static ReplicaDigest of(const NamedValues& values);
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
  // The same, with the digest that the first rank gave for `key`, and with that rank; nothing also
  // if this is the first rank, or the store is gone. Not collective. Waits a moment for the store
  // at most.
  std::optional<std::pair<Difference, int>> compare_with_first(Communicator& ranks,
                                                               const std::string& key) const;

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

// "what differs between rank 1 and rank 2"
std::string difference_text(const std::string& what, int one, int other);
// "'weight' of model 0 differs between rank 1 and rank 2"
std::string difference_text(const ReplicaDigest::Difference& difference, size_t model, int one,
                            int other);
// What to throw as UsageError because of it.
ErrorInfo difference_error(const std::string& text, const char* where);
void warn_of_rounding(const std::string& text);

// Throws UsageError on all ranks alike if model number `model` is not the same on those of them
// that say true for `compares`. Differences as small as rounding are logged. Collective.
void require_same_replica(Communicator& ranks, const torch::nn::Module& module, size_t model,
                          bool compares, const char* where);

}  // namespace accelerate

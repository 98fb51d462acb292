// Whether this process may fork workers that use libtorch.
#pragma once

#include <string>
#include <string_view>

namespace accelerate::notebook {

// Whether the CUDA driver was initialised in this process, by whomever. Asks the driver where it is
// loaded already, and neither loads nor initialises it.
bool cuda_is_initialised();

// Both throw UsageError that begins with the name `caller`.
// That the environment does not say that this process is a rank of several.
void require_no_ranks(std::string_view caller);
// That CUDA was not initialised: a forked process could not use it.
void require_no_cuda(std::string_view caller);

// There is at most one launch at a time in a process, and its workers start no others: they inherit
// the mark. The constructor throws UsageError if one is under way.
class OneLaunch {
 public:
  explicit OneLaunch(std::string_view caller);
  ~OneLaunch();
  OneLaunch(const OneLaunch&) = delete;
  OneLaunch& operator=(const OneLaunch&) = delete;
};

}  // namespace accelerate::notebook

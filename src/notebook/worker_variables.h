// What a worker that is forked from inside a program is told by its environment.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/notebook.h"

namespace accelerate::notebook {

// The environment of worker `local_rank` of `num_processes` on this machine, as NAME=value: what
// `accelerate launch` would give it. `attempt` counts the restarts.
std::vector<std::string> worker_variables(const NotebookOptions& options, int num_processes,
                                          int port, int local_rank, int attempt);

// CPU threads that this environment asks for; at least 1.
int threads_of(const std::vector<std::string>& environment);

// Sets what the options say about precision, device, CPU threads and restarts while it lives, for a
// function that runs in this process. `attempt` counts the restarts.
class VariablesInPlace {
 public:
  VariablesInPlace(const NotebookOptions& options, int attempt);
  ~VariablesInPlace();
  VariablesInPlace(const VariablesInPlace&) = delete;
  VariablesInPlace& operator=(const VariablesInPlace&) = delete;

 private:
  void set(const char* name, const std::string& value);

  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
  std::optional<int> threads_before_;
};

}  // namespace accelerate::notebook

// The ranks of a job, for programs that train nothing: evaluation, preparing data, tools.
//
//   accelerate::PartialState state;
//   for (const auto& file : state.split_between_processes(files)) convert(file);
//   state.wait_for_everyone();
//   state.print("converted ", files.size(), " files");
#pragma once

#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "accelerate/communicator.h"
#include "accelerate/export.h"
#include "accelerate/process_control.h"
#include "accelerate/process_state.h"
#include "accelerate/split.h"

namespace accelerate {

struct PartialStateOptions {
  bool cpu = false;  // stay on the CPU even if there is a GPU
  ProcessGroupOptions process_group{};
};

// Who this process is, and a group of all ranks. Converts to both wherever a function takes
// a ProcessState or a Communicator: gather(state, x), on_main_process(state, f). The members have
// the names and the meaning of those of Accelerator. A handle: copies share the group. One thread
// at a time.
class ACCELERATE_EXPORT PartialState {
 public:
  // Reads the environment and opens the group. Collective: all ranks of the job, in the same order
  // as other groups and accelerators. Throws ConfigError and CommError.
  explicit PartialState(const PartialStateOptions& options = {});

  const ProcessState& state() const { return state_; }
  Communicator& communicator() const { return *communicator_; }
  // NOLINTBEGIN(google-explicit-constructor): it converts to both
  operator const ProcessState&() const { return state_; }
  operator Communicator&() const { return *communicator_; }
  // NOLINTEND(google-explicit-constructor)

  c10::Device device() const { return state_.device(); }
  DistributedType distributed_type() const { return state_.distributed_type(); }
  int num_processes() const { return state_.world_size(); }
  int process_index() const { return state_.rank(); }
  int local_process_index() const { return state_.local_rank(); }
  bool is_main_process() const { return state_.is_main_process(); }
  bool is_local_main_process() const { return state_.is_local_main_process(); }
  bool is_last_process() const { return state_.is_last_process(); }

  // Returns when all ranks have called it. Collective.
  void wait_for_everyone() const;

  // Writes its arguments and a newline to standard output, only on the main process.
  template <class... Ts>
  void print(const Ts&... values) const {
    if (!is_main_process()) return;
    std::ostringstream text;
    (text << ... << values);
    print_line(text.str());
  }

  // This rank's share of `inputs`; see split.h.
  template <Splittable V>
  [[nodiscard]] auto split_between_processes(V&& inputs, SplitOptions options = {}) const {
    return accelerate::split_between_processes(state_, std::forward<V>(inputs), options);
  }
  template <Splittable V, UsesShareOf<V> Use>
  auto split_between_processes(V&& inputs, Use&& use, SplitOptions options = {}) const {
    return accelerate::split_between_processes(state_, std::forward<V>(inputs),
                                               std::forward<Use>(use), options);
  }

  template <class Function>
  [[nodiscard]] auto on_main_process(Function&& function) const {
    return accelerate::on_main_process(state_, std::forward<Function>(function));
  }
  ProcessesFirst main_process_first() const {
    return accelerate::main_process_first(state_, *communicator_);
  }
  ProcessesFirst local_main_process_first() const {
    return accelerate::local_main_process_first(state_, *communicator_);
  }

 private:
  static void print_line(const std::string& text);

  ProcessState state_;
  std::shared_ptr<Communicator> communicator_;
};

}  // namespace accelerate

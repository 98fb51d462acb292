// Training on several processes from inside a program or a notebook: no launcher, no second binary.
//
//   auto losses = accelerate::notebook_launcher([&] {
//     accelerate::Accelerator accelerator;  // rank, device and peers of this worker
//     return train(accelerator);
//   }, {.num_processes = 2});               // losses[r] is what rank r returned
//
// The workers are forked, so the function sees all variables of the caller as they were; what it
// changes stays in its worker. Only what it returns comes back.
#pragma once

#include <chrono>
#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "accelerate/detail/packed_value.h"
#include "accelerate/errors.h"
#include "accelerate/export.h"
#include "accelerate/mixed_precision.h"
#include "accelerate/nested.h"

namespace accelerate {

// A worker threw, was killed or left before its function returned. rank() says which, message()
// what happened: for an exception its type and text.
class ACCELERATE_EXPORT WorkerError : public Error {
 public:
  explicit WorkerError(ErrorInfo info) : Error("WorkerError", std::move(info)) {}
};

struct NotebookOptions {
  // Workers on this machine; unset: one for each GPU that can be seen, else one. A single worker
  // (on a single node) is not forked: the function runs in the caller, and what it changes, also
  // before a restart, stays changed.
  std::optional<int> num_processes{};
  // What an Accelerator uses by default; unset: what the environment says.
  std::optional<MixedPrecision> mixed_precision{};
  bool cpu = false;  // stay on the CPU even if there are GPUs
  // CPU threads of each worker; unset: OMP_NUM_THREADS, else the cores shared out evenly.
  std::optional<int> num_cpu_threads_per_process{};

  // Port of rank 0. Unset: a free port, or 29500 where there are several nodes.
  std::optional<int> use_port{};
  std::string master_addr = "127.0.0.1";
  // Several machines: each makes the same call with its own node_rank, and the address of node 0.
  int num_nodes = 1;
  int node_rank = 0;

  // How often all workers are restarted after one has failed; a single worker after an
  // exception. One node only. ProcessState::restart_count() is the number of the attempt.
  int max_restarts = 0;
  // How long workers may take to end after SIGTERM, once one has failed, before they are killed.
  std::chrono::milliseconds grace{5'000};
};

namespace detail {

using WorkerBody = std::function<PackedValue()>;

// Runs `body` on the workers and returns their results by local rank. `caller` is the name of the
// public function, for messages.
ACCELERATE_EXPORT std::vector<PackedValue> run_workers(std::string_view caller,
                                                       const NotebookOptions& options,
                                                       const WorkerBody& body);

template <class Function>
auto launch_inside(std::string_view caller, Function& function, const NotebookOptions& options) {
  using Result = std::remove_cvref_t<std::invoke_result_t<Function&>>;
  if constexpr (std::is_void_v<Result>) {
    run_workers(caller, options, [&] {
      function();
      return PackedValue{};
    });
  } else {
    static_assert(
        Nested<Result>,
        "the function must return nothing, or what can be sent: tensors, numbers, strings "
        "and what nested.h builds of them");
    std::vector<Result> results;
    for (const PackedValue& packed :
         run_workers(caller, options, [&] { return pack(Result(function())); })) {
      results.push_back(unpack<Result>(packed.header, packed.bytes));
    }
    return results;
  }
}

}  // namespace detail

// Runs `function()` on num_processes workers, each with the environment that `accelerate launch`
// would give it: an Accelerator made inside knows its rank and meets the others. Blocks until all
// have ended. Returns nothing if the function does, else a std::vector of what this machine's
// workers returned (any nested value; tensors arrive on the CPU), by local rank.
//
// If a worker fails the others are stopped and WorkerError describes the first failure. Nothing
// that workers started is left running, also if the caller is killed: a separate process, forked
// first, supervises them and everything they start. A single worker runs in the caller's
// process, and its exceptions are passed on unchanged.
//
// Throws UsageError, and forks nothing, where workers could not run: CUDA was initialised in this
// process (a forked process cannot use it), this process is itself a rank of several, or another
// such launch is in progress in it, also further up the call stack.
//
// Of the caller's threads only the calling one lives on in the workers: locks that others hold stay
// held. torch's own threads for parallel loops are restarted. Standard input of workers is
// empty; output goes where the caller's goes. No destructors of static objects run in them.
template <std::invocable Function>
auto notebook_launcher(Function&& function, const NotebookOptions& options = {}) {
  return detail::launch_inside("notebook_launcher", function, options);
}

// notebook_launcher() on CPUs, without mixed precision: to try code for several processes on any
// machine.
template <std::invocable Function>
auto debug_launcher(Function&& function, int num_processes = 2) {
  return detail::launch_inside(
      "debug_launcher", function,
      {.num_processes = num_processes, .mixed_precision = MixedPrecision::kNo, .cpu = true});
}

}  // namespace accelerate

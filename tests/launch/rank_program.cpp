// A small program of the library, for tests of what starts programs.
//
//   rank_program sum                  adds up rank + 1 over all ranks and prints its own place
//   rank_program steps N [FAIL]       N collectives in a row, 20 ms apart, after "step 0" is
//   printed;
//                                     FAIL is RANK:STEP:RESTART: throws there in that attempt
//   rank_program steps N --slow RANK    the same; RANK takes 60 ms more for each
//   rank_program refuse [RANK [MS]]   every rank, or RANK alone, throws a UsageError out of
//                                     accelerate::run() after a collective; RANK takes MS
//                                     milliseconds from where its peers notice to its end
//   rank_program steps N --resume DIR [FAIL]  the same, going on after a restart where DIR says
#include <ATen/ATen.h>
#include <accelerate/accelerator.h>
#include <accelerate/run.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/end_after_a_peer.h"
#include "support/numeric_names.h"

namespace {

struct Failure {
  int rank = -1;
  int step = -1;
  int restart = -1;
};

accelerate::AcceleratorOptions options() {
  accelerate::AcceleratorOptions options{.cpu = true};
  options.process_group.rendezvous_timeout = std::chrono::seconds(120);
  options.process_group.timeout = std::chrono::seconds(120);
  return options;
}

double sum_over_ranks(accelerate::Accelerator& accelerator) {
  at::Tensor value = at::full({1}, accelerator.process_index() + 1.0);
  accelerator.communicator().all_reduce(value);
  return value.item<double>();
}

void print_place(accelerate::Accelerator& accelerator) {
  const double sum = sum_over_ranks(accelerator);
  const accelerate::ProcessState& state = accelerator.state();
  std::printf("rank %d of %d, local %d of %d, node %d, restart %d, by %s: sum %g\n", state.rank(),
              state.world_size(), state.local_rank(), state.local_world_size(), state.node_rank(),
              state.restart_count(), state.ranks().source.c_str(), sum);
}

void run_steps(accelerate::Accelerator& accelerator, int steps, const std::string& folder,
               const Failure& failure, int slow_rank) {
  const int restart = accelerator.state().restart_count();
  const std::filesystem::path file = std::filesystem::path(folder) / "step";
  int step = 0;
  if (restart > 0 && !folder.empty()) std::ifstream(file) >> step;
  std::printf("rank %d begins restart %d at step %d\n", accelerator.process_index(), restart, step);
  std::fflush(stdout);
  for (; step < steps; ++step) {
    sum_over_ranks(accelerator);
    if (accelerator.is_main_process() && !folder.empty()) {
      std::ofstream(folder + "/step.new") << step + 1;
      std::filesystem::rename(folder + "/step.new", file);
    }
    // Nobody fails before the step is on the disk: a rank that fails has the others stopped.
    if (!folder.empty()) accelerator.wait_for_everyone();
    if (accelerator.process_index() == failure.rank && step == failure.step &&
        restart == failure.restart) {
      throw std::runtime_error("the loss is not a number at step " + std::to_string(step));
    }
    const bool is_slow = accelerator.process_index() == slow_rank;
    std::this_thread::sleep_for(std::chrono::milliseconds(is_slow ? 80 : 20));
  }
  accelerator.wait_for_everyone();
  std::printf("rank %d ended at step %d\n", accelerator.process_index(), step);
}

void refuse(const std::string& who, bool ends_after_a_peer) {
  accelerate::test::EndAfterAPeer end;
  accelerate::Accelerator accelerator(options());
  const at::Tensor pids =
      accelerator.gather(at::full({1}, static_cast<int64_t>(getpid()), at::kLong));
  if (ends_after_a_peer && std::to_string(accelerator.process_index()) == who) {
    for (int64_t rank = 0; rank < pids.numel(); ++rank) {
      const auto pid = static_cast<pid_t>(pids[rank].item<int64_t>());
      if (pid != getpid()) end.peers.push_back(pid);
    }
  }
  if (!who.empty() && std::to_string(accelerator.process_index()) != who) {
    std::printf("waiting\n");
    std::fflush(stdout);
    accelerator.wait_for_everyone();
    return;
  }
  accelerate::UsageError error({.what = "the data have 3 columns, the model takes 4",
                                .where = "rank_program",
                                .hint = "another model"});
  error.set_rank(accelerator.process_index(), accelerator.num_processes());
  throw error;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "refuse") == 0) {
    const bool ends_after_a_peer = argc > 3 && std::strcmp(argv[3], "after_a_peer") == 0;
    return accelerate::run([&] { refuse(argc > 2 ? argv[2] : "", ends_after_a_peer); });
  }
  const std::string action = argc > 1 ? argv[1] : "sum";
  accelerate::Accelerator accelerator(options());
  if (action == "sum") {
    print_place(accelerator);
    return 0;
  }
  std::string folder;
  Failure failure;
  int slow_rank = -1;
  for (int i = 3; i < argc; ++i) {
    if (std::strcmp(argv[i], "--resume") == 0 && i + 1 < argc) {
      folder = argv[++i];
    } else if (std::strcmp(argv[i], "--slow") == 0 && i + 1 < argc) {
      slow_rank = std::stoi(argv[++i]);
    } else if (std::sscanf(argv[i], "%d:%d:%d", &failure.rank, &failure.step, &failure.restart) !=
               3) {
      throw std::invalid_argument(argv[i]);
    }
  }
  run_steps(accelerator, std::stoi(argv[2]), folder, failure, slow_rank);
  return 0;
}

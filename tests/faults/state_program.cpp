// Saves the state of a training on several ranks, for run_faults.py: two saves with rotation. The
// weights of checkpoint n are all n, so that a mix of two would show.
//
//   state_program prepare FOLDER    checkpoints 0 and 1, by one process
//   state_program save FOLDER       checkpoints 2 and 3 under faults; prints each once it is saved
//   state_program check FOLDER      whether all promises were kept; see run_faults.py
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>
#include <sstream>

#include "files/checkpoint_directory.h"

namespace {

using accelerate::Accelerator;
using std::filesystem::path;

constexpr int kOtherErrorCode = 5;
constexpr int kCheckpointErrorCode = 3;

struct Training {
  explicit Training(const path& folder)
      : accelerator({.cpu = true,
                     .project = {.project_dir = folder,
                                 .automatic_checkpoint_naming = true,
                                 .total_limit = 2},
                     .process_group = {.timeout = std::chrono::seconds(60)}}),
        sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)) {
    accelerator.prepare(net);
    accelerator.prepare(sgd);
  }

  // Saves weights that are all equal to the number of the checkpoint.
  void save() {
    const int64_t number = accelerator.save_iteration();
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : net->parameters()) {
      parameter.fill_(static_cast<double>(number));
    }
    accelerator.save_state();
    if (!accelerator.is_main_process()) return;
    std::printf("checkpoint_%d\n", static_cast<int>(number));
    std::fflush(stdout);
  }

  Accelerator accelerator;
  torch::nn::Linear net{torch::nn::LinearOptions(100, 100)};
  torch::optim::SGD sgd;
};

void prepare(const path& folder) {
  Training training(folder);
  training.save();
  training.save();
}

void save(const path& folder) {
  Training training(folder);
  training.accelerator.load_state();
  training.save();
  training.save();
}

void require(bool holds, const std::string& promise) {
  if (holds) return;
  std::cout << promise << "\n";
  std::exit(1);
}

std::set<std::string> checked_checkpoints(const path& folder) {
  std::set<std::string> names;
  for (const auto& entry : accelerate::files::list_checkpoints(folder)) {
    require(entry.is_complete(), entry.name + " is visible but not complete: " + entry.problem);
    require(accelerate::files::verify(entry.directory).empty(), entry.name + " is damaged");
    const auto weights = accelerate::load_state_dict(entry.directory / "model.safetensors");
    for (const auto& item : weights) {
      require(item.value().eq(static_cast<double>(*entry.number)).all().item<bool>(),
              entry.name + " holds weights of another");
    }
    names.insert(entry.name);
  }
  return names;
}

void check(const path& folder) {
  const char* printed = std::getenv("FAULTS_OUTPUT");
  std::istringstream lines(printed == nullptr ? "" : printed);
  const std::set<std::string> names = checked_checkpoints(folder / "checkpoints");
  require(names.contains("checkpoint_1") || names.contains("checkpoint_2") ||
              names.contains("checkpoint_3"),
          "no checkpoint is left");
  std::string last = "checkpoint_1";
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("checkpoint_")) last = line;
  }
  require(*names.rbegin() >= last, "the last checkpoint that was saved is not there");

  // Whatever happened, the next run goes on from what is there and leaves the folder tidy.
  Training training(folder);
  require(training.accelerator.load_state() == folder / "checkpoints" / *names.rbegin(),
          "another checkpoint than the newest was loaded");
  training.save();
  for (const auto& entry : std::filesystem::directory_iterator(folder / "checkpoints")) {
    const std::string name = entry.path().filename().string();
    require(!name.starts_with("."), "the next save left " + name);
  }
  require(checked_checkpoints(folder / "checkpoints").size() == 2, "there should be two");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string command = argv[1];
  try {
    if (command == "prepare") return prepare(argv[2]), 0;
    if (command == "save") return save(argv[2]), 0;
    if (command == "check") return check(argv[2]), 0;
  } catch (const accelerate::CheckpointError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kCheckpointErrorCode;
  } catch (const accelerate::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kOtherErrorCode;
  }
  return 2;
}

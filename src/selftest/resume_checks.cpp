// Saving, and going on as if nothing had happened.
#include <accelerate/dataset.h>
#include <accelerate/random.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "selftest/expect.h"
#include "selftest/network.h"

namespace accelerate::selftest {
namespace {

namespace fs = std::filesystem;

// A folder of the main process, which removes it at the end.
class SharedFolder {
 public:
  SharedFolder(Accelerator& accelerator, const fs::path& parent) {
    std::string path;
    if (accelerator.is_main_process()) {
      const fs::path place = parent.empty() ? fs::temp_directory_path() : parent;
      std::string pattern = (place / "accelerate-selftest-XXXXXX").string();
      if (mkdtemp(pattern.data()) != nullptr) path = own_ = pattern;
    }
    path_ = accelerator.broadcast_object(path);
    if (path_.empty()) {
      // Who throws closes its connections: not before all have the answer.
      accelerator.wait_for_everyone();
      throw Mismatch("expected that the main process can write to " +
                     (parent.empty() ? fs::temp_directory_path() : parent).string());
    }
    const auto seen = accelerator.gather_object(fs::is_directory(path_));
    if (std::find(seen.begin(), seen.end(), false) == seen.end()) return;
    remove();
    throw Skipped("not all nodes see " + path_.parent_path().string() +
                  ": name a folder that they share with --folder");
  }
  ~SharedFolder() { remove(); }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  const fs::path& path() const { return path_; }

 private:
  void remove() {
    std::error_code ignored;  // a folder that cannot be removed is no failure of the check
    if (!own_.empty()) fs::remove_all(own_, ignored);
  }

  fs::path path_;
  fs::path own_;
};

struct ResumeProgress {
  std::vector<double> losses;
  at::Tensor parameters;
};

Findings check_resume(Accelerator& accelerator, const fs::path& parent) {
  constexpr int64_t kBatch = 4;
  constexpr int kSavedAfter = 2;
  constexpr size_t kBatches = 6;
  const SharedFolder folder(accelerator, parent);

  auto net = network(7, 0.3);
  torch::optim::AdamW adamw(net->parameters(), 0.01);
  const Problem all =
      problem(9, kBatch * static_cast<int64_t>(kBatches) * accelerator.num_processes());
  auto batches = data_loader(TensorDataset(all.input, all.target),
                             {.batch_size = kBatch, .shuffle = true, .seed = 3});
  auto schedule = get_scheduler("linear", adamw, {.warmup_steps = 2, .training_steps = 100});
  auto [model, optimizer, scheduler, loader] = accelerator.prepare(net, adamw, schedule, batches);
  // Dropout differs on each rank.
  set_seed(21, {.device_specific = true, .rank = accelerator.process_index()});

  const auto train = [&, &model = model, &optimizer = optimizer, &scheduler = scheduler,
                      &loader = loader](int save_after) {
    ResumeProgress progress;
    int done = 0;
    for (auto& batch : loader) {
      const at::Tensor loss = torch::mse_loss(model(batch.data), batch.target);
      accelerator.backward(loss);
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
      if (++done == save_after) {
        accelerator.save_state(folder.path() / "state");
        progress.losses.clear();
      } else {
        progress.losses.push_back(loss.template item<double>());
      }
    }
    progress.parameters = flat(net->parameters());
    return progress;
  };
  const ResumeProgress straight = train(kSavedAfter);
  accelerator.load_state(folder.path() / "state");
  const ResumeProgress resumed = train(0);

  expect_equal("batches after the saved one", resumed.losses.size(), kBatches - kSavedAfter);
  expect_equal("losses after loading, to the last bit", resumed.losses, straight.losses);
  expect_same("parameters after loading, to the last bit", resumed.parameters, straight.parameters);
  accelerator.wait_for_everyone();  // nobody needs the folder any more
  return {.detail = "in the middle of a pass, bit for bit"};
}

}  // namespace

std::vector<Check> resume_checks(const fs::path& folder) {
  AcceleratorOptions options = plain_options();
  options.scheduler.pace = SchedulerPace::kPerOptimizerStep;  // chosen, so that nothing is said
  return {{"checkpoints", "save and resume", options,
           [folder](Accelerator& accelerator) { return check_resume(accelerator, folder); }}};
}

}  // namespace accelerate::selftest

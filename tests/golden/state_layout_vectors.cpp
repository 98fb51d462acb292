// The files of a saved state are those that the Python library writes, and two kinds of our own.
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <deque>

#include "golden/case_log.h"
#include "golden/reference_data.h"
#include "multiproc/state_folder.h"
#include "multiproc/training.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

struct StateLayout : Ranks {};

struct Nothing {
  StateDict state_dict() const { return {}; }
  void load_state_dict(const StateDict&) {}
};

// Without the manifest and the positions of loaders, which the Python library does not write.
std::vector<std::string> files_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() || name == "manifest.json" || name.starts_with("sampler")) continue;
    names.push_back(std::filesystem::relative(entry.path(), folder).string());
  }
  std::ranges::sort(names);
  return names;
}

void save_as_recorded(CaseLog& log, const json& recorded, const std::filesystem::path& folder) {
  AcceleratorOptions options = on_cpu();
  const bool numbered = recorded.at("automatic_checkpoint_naming");
  options.project = {.project_dir = folder, .automatic_checkpoint_naming = numbered};
  if (!recorded.at("total_limit").is_null())
    options.project.total_limit = recorded.at("total_limit");
  Accelerator accelerator(options);
  std::vector<std::shared_ptr<Mlp>> nets;
  std::deque<torch::optim::AdamW> optimizers;
  std::deque<Nothing> objects(recorded.at("custom_objects").get<size_t>());
  using Loader = decltype(data_loader(std::vector<int64_t>{}));
  std::vector<PreparedOptimizer> prepared;  // what nobody holds is not saved
  std::vector<PreparedScheduler> schedulers;
  std::vector<Loader> loaders;
  for (int i = 0; i < recorded.at("models"); ++i) {
    nets.push_back(std::make_shared<Mlp>());
    accelerator.prepare(nets.back());
  }
  for (int i = 0; i < recorded.at("optimizers"); ++i) {
    const size_t net = static_cast<size_t>(i) % nets.size();
    optimizers.emplace_back(nets.at(net)->parameters(), 0.1);
    prepared.push_back(accelerator.prepare(optimizers.back()));
  }
  for (int i = 0; i < recorded.at("schedulers"); ++i) {
    schedulers.push_back(accelerator.prepare(
        get_scheduler("constant", optimizers.at(static_cast<size_t>(i) % optimizers.size()))));
  }
  for (int i = 0; i < recorded.at("dataloaders"); ++i) {
    loaders.push_back(accelerator.prepare(data_loader(std::vector<int64_t>{1, 2, 3, 4})));
  }
  for (Nothing& object : objects) accelerator.register_for_checkpointing(object);
  const std::filesystem::path directory = numbered ? "" : folder / "state";
  for (int i = 0; i < recorded.at("num_saves"); ++i) {
    accelerator.save_state(directory,
                           {.safe_serialization = recorded.at("safe_serialization").get<bool>()});
  }
  log.expect_equal("files", files_in(folder / (numbered ? "checkpoints" : "state")),
                   recorded.at("files").get<std::vector<std::string>>());
}

TEST_F(StateLayout, IsThatOfThePythonLibrary) {
  const json cases = load_vectors("checkpoint_layout.json");
  ASSERT_FALSE(cases.empty());
  for (const json& recorded : cases) {
    const StateFolder folder;
    run(recorded.at("num_processes"), [&](const Rank&) {
      CaseLog log;
      log.run(inputs_of(recorded), [&] { save_as_recorded(log, recorded, folder.path()); });
      log.report();
    });
  }
}

}  // namespace
}  // namespace accelerate::test

// States that FSDP of Python has saved, loaded into a training of this library: parameters and what
// the optimizer keeps of them are found by their names, on any number of ranks.
#include <accelerate/accelerate.h>
#include <accelerate/optimizer_state.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "golden/recorded_states.h"
#include "golden/reference_data.h"
#include "multiproc/state_folder.h"
#include "multiproc/training.h"
#include "support/error_of.h"

namespace accelerate::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A recording of a model and its optimizer by torch.distributed.checkpoint.
struct FsdpRun {
  fs::path folder;
  std::map<std::string, at::Tensor> weights;
  std::map<std::string, std::map<std::string, at::Tensor>> state;  // of parameters, by field
  json groups;
};

FsdpRun fsdp_run(const fs::path& folder, const fs::path& scratch) {
  FsdpRun run{.folder = folder, .weights = {}, .state = {}, .groups = {}};
  const SafetensorsFile weights(folder / "expected_model.safetensors");
  for (const std::string& name : weights.names()) run.weights[name] = weights.tensor(name).clone();
  const SafetensorsFile state(folder / "expected_optimizer.safetensors");
  for (const std::string& name : state.names()) {
    const size_t dot = name.rfind('.');
    run.state[name.substr(0, dot)][name.substr(dot + 1)] = state.tensor(name).clone();
  }
  const fs::path merged = scratch / (folder.filename().string() + ".safetensors");
  if (!fs::exists(merged)) merge_weights(folder / "optimizer_0", merged);
  run.groups = json::parse(SafetensorsFile(merged).metadata().at("param_groups"));
  return run;
}

std::vector<fs::path> recorded_fsdp_runs() {
  std::vector<fs::path> runs;
  for (const auto& entry : fs::recursive_directory_iterator(fixtures_folder().path)) {
    if (entry.path().filename() == "expected_optimizer.safetensors") {
      runs.push_back(entry.path().parent_path());
    }
  }
  return runs;
}

// A model without values, and an optimizer of the recorded kind whose groups have its parameters
// from the last to the first.
struct Blank {
  explicit Blank(const FsdpRun& run) : model(std::make_shared<NamedTensorModule>()) {
    for (const auto& [name, weight] : run.weights) {
      model->put(name, torch::zeros_like(weight), run.state.contains(name));
    }
    const auto parameters = model->named_parameters();
    std::vector<torch::optim::OptimizerParamGroup> groups;
    for (const json& group : run.groups) {
      auto names = group.at("params").get<std::vector<std::string>>();
      std::ranges::reverse(names);
      std::vector<at::Tensor> members;
      for (const std::string& name : names) members.push_back(parameters[name]);
      order.insert(order.end(), names.begin(), names.end());
      groups.emplace_back(members);
    }
    const json& options = run.groups.at(0);
    if (!options.contains("betas")) {
      optimizer = std::make_shared<torch::optim::SGD>(groups, torch::optim::SGDOptions(1));
    } else if (options.value("decoupled_weight_decay", true)) {
      optimizer = std::make_shared<torch::optim::AdamW>(groups);
    } else {
      optimizer = std::make_shared<torch::optim::Adam>(groups);
    }
  }

  at::Tensor loss() const {
    at::Tensor sum = torch::zeros({});
    for (const at::Tensor& parameter : model->parameters()) sum = sum + parameter.pow(2).sum();
    return sum;
  }

  std::shared_ptr<NamedTensorModule> model;
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  std::vector<std::string> order;  // of the parameters in the groups
};

// What a plain loop of torch makes of the recorded state in one step.
std::map<std::string, at::Tensor> next_weights(const FsdpRun& run) {
  Blank plain(run);
  {
    const torch::NoGradGuard no_grad;
    for (const auto& item : get_state_dict(*plain.model))
      item.value().copy_(run.weights.at(item.key()));
  }
  TorchDict states;
  TorchValue::List groups;
  int64_t number = 0;
  for (const json& recorded : run.groups) {
    TorchDict group = optimizer_state(*plain.optimizer)
                          .as_dict()
                          .at("param_groups")
                          .as_sequence()
                          .at(groups.size())
                          .as_dict();
    for (const auto& [option, value] : recorded.items()) {
      if (value.is_boolean()) group.set(option, value.get<bool>());
      if (value.is_number()) group.set(option, value.get<double>());
      if (option == "params" || !value.is_array()) continue;
      TorchTuple numbers;
      for (const json& each : value) numbers.items.emplace_back(each.get<double>());
      group.set(option, numbers);
    }
    TorchValue::List members;
    for (size_t i = 0; i < recorded.at("params").size(); ++i) {
      TorchDict state;
      for (const auto& [field, tensor] : run.state.at(plain.order.at(number)))
        state.add(field, tensor);
      states.add(number, state);
      members.emplace_back(number++);
    }
    group.set("params", members);
    groups.emplace_back(group);
  }
  load_optimizer_state(*plain.optimizer, TorchDict{{"state", states}, {"param_groups", groups}});
  plain.loss().backward();
  plain.optimizer->step();
  std::map<std::string, at::Tensor> weights;
  for (const auto& item : get_state_dict(*plain.model)) weights[item.key()] = item.value().detach();
  return weights;
}

struct ShardedRunStates : Ranks {
  ShardedRunStates() {
    for (const fs::path& run : recorded_fsdp_runs()) {
      const fs::path state = state_of(run);
      fs::copy(run, state, fs::copy_options::recursive);
      fs::copy(fixtures_folder().path / "accelerate_state/mlp/random_states_0.pkl", state);
    }
  }
  fs::path state_of(const fs::path& run) const { return folder / run.filename().string(); }

  StateFolder folder;
};

TEST_F(ShardedRunStates, GoOnByAnyStrategyOnAnyNumberOfRanks) {
  EXPECT_FALSE(recorded_fsdp_runs().empty());
  for (const int ranks : {1, 2, 3}) {
    run(ranks, [&](const Rank& rank) {
      for (const fs::path& recorded : recorded_fsdp_runs()) {
        const FsdpRun saved =
            fsdp_run(recorded, fs::path(folder / ("scratch" + std::to_string(rank.rank))));
        const auto expected = next_weights(saved);
        for (const int stage : {0, 1, 2, 3}) {
          SCOPED_TRACE("stage " + std::to_string(stage));
          AcceleratorOptions options = on_cpu();
          if (stage > 0) options.strategy = ZeroOptions{.stage = stage};
          Accelerator accelerator(options);
          Blank blank(saved);
          auto [model, optimizer] = accelerator.prepare(blank.model, blank.optimizer);
          accelerator.load_state(state_of(recorded));
          for (const auto& item : accelerator.get_state_dict(model)) {
            EXPECT_TRUE(torch::equal(item.value(), saved.weights.at(item.key()))) << item.key();
          }
          const auto& fields = saved.state.begin()->second;
          if (const auto step = fields.find("step"); step != fields.end()) {
            EXPECT_EQ(optimizer.step_count(), step->second.item<double>());
          }
          accelerator.backward(blank.loss());
          optimizer.step();
          for (const auto& item : accelerator.get_state_dict(model)) {
            const bool is_half = c10::isReducedFloatingType(item.value().scalar_type());
            const double tolerance = is_half ? 1e-2 : 1e-5;
            EXPECT_TRUE(torch::allclose(item.value(), expected.at(item.key()), tolerance, 1e-6))
                << item.key();
            if (!saved.state.contains(item.key())) continue;
            EXPECT_FALSE(torch::equal(item.value(), saved.weights.at(item.key()))) << item.key();
          }
        }
      }
    });
  }
}

TEST_F(ShardedRunStates, OfOtherParametersAreRefusedByName) {
  run(1, [&](const Rank&) {
    const fs::path recorded = recorded_fsdp_runs().front();
    const FsdpRun saved = fsdp_run(recorded, fs::path(folder / "scratch0"));
    Accelerator accelerator(on_cpu());
    auto model = std::make_shared<NamedTensorModule>();
    for (const auto& [name, weight] : saved.weights) {
      model->put("renamed." + name, torch::zeros_like(weight));
    }
    auto own = std::make_shared<torch::optim::AdamW>(model->parameters());
    auto [prepared, optimizer] = accelerator.prepare(model, own);
    const auto error = test::error_of<CheckpointError>(
        [&] { accelerator.load_state(state_of(recorded), {.strict = false}); });
    EXPECT_THAT(error.message(),
                testing::HasSubstr("it has no state for the parameter \"renamed."));
  });
}

// Its optimizer is not read: a load says so, unless it is told not to mind.
TEST_F(ShardedRunStates, OfDeepSpeedGiveTheModelAndSayThatTheOptimizerIsMissing) {
  for (const fs::path& recorded : fixture_folders("deepspeed_checkpoints")) {
    const fs::path state = folder / ("deepspeed_" + recorded.filename().string());
    fs::create_directories(state);
    std::string tag;
    std::ifstream(recorded / "latest") >> tag;
    fs::copy(recorded / tag, state / "pytorch_model", fs::copy_options::recursive);
    fs::copy(fixtures_folder().path / "accelerate_state/mlp/random_states_0.pkl", state);
    run(1, [&](const Rank&) {
      const SafetensorsFile expected(recorded / "expected_model.safetensors");
      Accelerator accelerator(on_cpu());
      auto module = std::make_shared<NamedTensorModule>();
      for (const std::string& name : expected.names()) {
        module->put(name, torch::zeros_like(expected.tensor(name)));
      }
      auto adamw = std::make_shared<torch::optim::AdamW>(module->parameters());
      auto [model, optimizer] = accelerator.prepare(module, adamw);
      EXPECT_THAT(test::error_of<CheckpointError>([&] { accelerator.load_state(state); }).message(),
                  testing::HasSubstr("the checkpoint holds 0 optimizers, this program has 1"));
      accelerator.load_state(state, {.strict = false});
      for (const auto& item : get_state_dict(*module)) {
        EXPECT_TRUE(torch::equal(item.value(), expected.tensor(item.key()))) << item.key();
      }
    });
  }
}

}  // namespace
}  // namespace accelerate::test

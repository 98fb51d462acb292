// Directories that the Python library's save_state has written, loaded and trained on.
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include "golden/case_log.h"
#include "golden/reference_data.h"
#include "multiproc/training.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

constexpr Tolerance kResumed{.absolute = 1e-5, .relative = 1e-5};

struct StateFixtures : Ranks {};

std::filesystem::path folder_of(const std::string& name) {
  return fixtures_folder().path / "accelerate_state" / name;
}

at::Tensor matrix_of(const json& rows) {
  const auto width = static_cast<int64_t>(rows.at(0).size());
  std::vector<double> all;
  for (const json& row : rows) {
    for (const json& value : row) all.push_back(value.get<double>());
  }
  return torch::tensor(all, at::kDouble).view({-1, width}).to(at::kFloat);
}

// As the float that the shortest decimal stands for.
std::vector<double> floats_of(const json& values) {
  std::vector<double> all;
  for (const json& value : values) all.push_back(static_cast<float>(value.get<double>()));
  return all;
}

// {"0.weight": {"shape": [...], "values": [...]}, ...}
void expect_weights(CaseLog& log, torch::nn::Module& module, const json& weights,
                    Tolerance tolerance) {
  for (const auto& item : module.named_parameters()) {
    log.expect_near(item.key(), flat({item.value()}),
                    floats_of(weights.at(item.key()).at("values")), tolerance);
  }
}

// Linear(4,8) - Tanh - Linear(8,3), with the names of a Python Sequential.
torch::nn::Sequential recorded_mlp() {
  return torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 3));
}

torch::optim::AdamW recorded_adamw(const std::vector<at::Tensor>& parameters) {
  return torch::optim::AdamW(parameters, torch::optim::AdamWOptions(0.01).weight_decay(0.1));
}

Scheduler recorded_schedule(torch::optim::Optimizer& optimizer) {
  return get_scheduler("linear", optimizer, {.warmup_steps = 3, .training_steps = 30});
}

void expect_random_numbers(CaseLog& log, const json& recorded) {
  const auto expect = [&](const char* name, const at::Tensor& drawn) {
    log.expect_near(name, flat({drawn}), recorded.at(name).get<std::vector<double>>(),
                    {.absolute = 1e-6});
  };
  expect("torch_rand5", torch::rand({5}));
  expect("torch_randn5", torch::randn({5}));
  expect("torch_randperm10", torch::randperm(10));
}

void load_and_go_on(CaseLog& log, const std::string& name, const json& recorded) {
  Accelerator accelerator(on_cpu());
  auto net = recorded_mlp();
  torch::optim::AdamW adamw = recorded_adamw(net->parameters());
  Scheduler linear = recorded_schedule(adamw);
  auto [model, optimizer, scheduler] = accelerator.prepare(net, adamw, linear);
  accelerator.load_state(folder_of(name));
  expect_weights(log, *net, recorded.at("weights"), {});
  log.expect_near("lr", scheduler.last_lr(), {recorded.at("lr").get<double>()}, {.relative = 1e-9});
  expect_random_numbers(log, recorded.at("random_numbers_after_load_state"));
  const json& after = recorded.at("after_resume");
  for (size_t i = 0; i < recorded.at("next_batches").size(); ++i) {
    const json& batch = recorded.at("next_batches").at(i);
    const at::Tensor loss = loss_of(model(matrix_of(batch.at("x"))), matrix_of(batch.at("y")));
    accelerator.backward(loss);
    optimizer.step();
    scheduler.step();
    optimizer.zero_grad();
    const std::string step = " of step " + std::to_string(i);
    log.expect_near("loss" + step, {loss.item<double>()}, {after.at("loss").at(i).get<double>()},
                    kResumed);
    log.expect_near("rate after" + step, scheduler.last_lr(),
                    {after.at("lr_after").at(i).get<double>()}, {.relative = 1e-9});
  }
  expect_weights(log, *net, after.at("weights_after"), kResumed);
}

TEST_F(StateFixtures, TrainingGoesOnAsRecorded) {
  for (const char* name : {"mlp", "mlp_torch_bin", "mlp_seedable_sampler"}) {
    LOAD_FIXTURE_OR_SKIP(recorded, std::string("accelerate_state/") + name + "/expected.json");
    run(1, [&](const Rank&) {
      CaseLog log;
      log.run(name, [&] { load_and_go_on(log, name, recorded); });
      log.report();
    });
  }
}

struct Recorder {
  StateDict state{};
  StateDict state_dict() const { return state; }
  void load_state_dict(const StateDict& loaded) { state = loaded; }
};

TEST_F(StateFixtures, TwoModelsAndARegisteredObjectComeBack) {
  LOAD_FIXTURE_OR_SKIP(recorded, "accelerate_state/two_models_custom/expected.json");
  run(1, [&](const Rank&) {
    namespace optim = torch::optim;
    Accelerator accelerator(on_cpu());
    auto first = recorded_mlp(), second = recorded_mlp();
    optim::SGD sgd(first->parameters(), optim::SGDOptions(0.1).momentum(0.9).nesterov(true));
    const auto options = [](double lr, double decay) {
      return std::make_unique<optim::AdamWOptions>(
          optim::AdamWOptions(lr).amsgrad(true).weight_decay(decay));
    };
    optim::AdamW adamw(
        {optim::OptimizerParamGroup(second->ptr(0)->parameters(), options(0.05, 0)),
         optim::OptimizerParamGroup(second->ptr(2)->parameters(), options(0.5, 0.01))},
        optim::AdamWOptions(0.05).amsgrad(true));
    Scheduler cosine = get_scheduler("cosine", sgd, {.warmup_steps = 2, .training_steps = 20});
    Scheduler steps(adamw, step_lr({.step_size = 2, .gamma = 0.5}));
    Recorder recorder;
    accelerator.register_for_checkpointing(recorder);
    auto [a, b, s, w, c, t] = accelerator.prepare(first, second, sgd, adamw, cosine, steps);
    accelerator.load_state(folder_of("two_models_custom"));
    CaseLog log;
    log.run("two_models_custom", [&] {
      expect_weights(log, *first, recorded.at("weights"), {});
      expect_weights(log, *second, recorded.at("weights_1"), {});
      const auto rates = recorded.at("lr").get<std::vector<std::vector<double>>>();
      log.expect_near("cosine", c.last_lr(), rates[0], {.relative = 1e-9});
      log.expect_near("step", t.last_lr(), rates[1], {.relative = 1e-9});
      const json& custom = recorded.at("custom_checkpoint_0_pkl");
      log.expect_equal("n", recorder.state.at("n").as_integer(), custom.at("n").get<int64_t>());
      log.expect_equal("hist", recorder.state.at("hist").as_numbers(),
                       custom.at("hist").get<std::vector<double>>());
      log.expect_near("t", flat({recorder.state.at("t").as_tensor()}), {0, 1, 2}, {});
    });
    log.report();
    EXPECT_EQ(sgd.state().size(), 4U);
    EXPECT_EQ(adamw.state().size(), 4U);
  });
}

TEST_F(StateFixtures, TwoRanksGoOnWithTheirOwnRandomNumbers) {
  LOAD_FIXTURE_OR_SKIP(recorded, "accelerate_state/two_process/expected.json");
  run(2, [&](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto net = recorded_mlp();
    torch::optim::AdamW adamw = recorded_adamw(net->parameters());
    Scheduler linear = recorded_schedule(adamw);
    auto [model, optimizer, scheduler] = accelerator.prepare(net, adamw, linear);
    accelerator.load_state(folder_of("two_process"));
    CaseLog log;
    log.run("two_process", [&] {
      expect_weights(log, *net, recorded.at("weights"), {});
      log.expect_near("lr", scheduler.last_lr(), {recorded.at("lr").get<double>()},
                      {.relative = 1e-9});
      log.expect_near("rand", flat({torch::rand({4})}),
                      recorded.at("torch_rand4_after_load_state_per_rank")
                          .at(static_cast<size_t>(rank.rank))
                          .get<std::vector<double>>(),
                      {.absolute = 1e-6});
    });
    log.report();
  });
}

// A module with parameters of any names.
struct NamedModule : torch::nn::Module {
  void put(const std::string& name, const at::Tensor& tensor) {
    const size_t dot = name.find('.');
    if (dot == std::string::npos) {
      register_parameter(name, tensor);
      return;
    }
    auto& child = children[name.substr(0, dot)];
    if (!child) child = register_module(name.substr(0, dot), std::make_shared<NamedModule>());
    child->put(name.substr(dot + 1), tensor);
  }
  std::map<std::string, std::shared_ptr<NamedModule>> children;
};

TEST_F(StateFixtures, TiedWeightsAreLoadedFromTheOneNameInTheFile) {
  for (const char* name : {"tied_plain_save_state", "tied_gpt2_save_state"}) {
    LOAD_FIXTURE_OR_SKIP(recorded, std::string("accelerate_state/") + name + "/expected.json");
    run(1, [&](const Rank&) {
      const ModelStateDict saved = load_state_dict(folder_of(name) / "model.safetensors");
      const std::string kept = recorded.at("tied").at(0), dropped = recorded.at("dropped").at(0);
      auto net = std::make_shared<NamedModule>();
      const at::Tensor tied = torch::zeros(saved[kept].sizes());
      for (const std::string key : recorded.at("state_dict_keys")) {
        const bool is_tied = key == kept || key == dropped;
        net->put(key, is_tied ? tied : torch::zeros(saved[key].sizes()));
      }
      Accelerator accelerator(on_cpu());
      auto model = accelerator.prepare(net);
      accelerator.load_state(folder_of(name));
      const ModelStateDict own = get_state_dict(*net);
      EXPECT_TRUE(own[dropped].equal(saved[kept]));
      for (const auto& item : saved) EXPECT_TRUE(own[item.key()].equal(item.value())) << item.key();
    });
  }
}

}  // namespace
}  // namespace accelerate::test

// Training of a small network on real ranks against the recorded run of the reference: the same
// samples, losses and parameters.
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <map>
#include <set>

#include "golden/case_log.h"
#include "golden/reference_data.h"
#include "support/ranks.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

constexpr Tolerance kFloat32{.absolute = 1e-5, .relative = 1e-5};

struct Network : torch::nn::Module {
  Network(const json& sizes, std::string activation)
      : activation(std::move(activation)),
        fc1(register_module("fc1", torch::nn::Linear(sizes.at("din").get<int64_t>(),
                                                     sizes.at("hid").get<int64_t>()))),
        fc2(register_module("fc2", torch::nn::Linear(sizes.at("hid").get<int64_t>(),
                                                     sizes.at("dout").get<int64_t>()))) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = fc1(x);
    if (activation == "relu") return fc2(torch::relu(hidden));
    if (activation == "gelu") return fc2(torch::gelu(hidden));
    return fc2(torch::tanh(hidden));
  }

  std::string activation;
  torch::nn::Linear fc1, fc2;
};

bool is_join(const json& recorded) { return recorded.value("join", false); }

// What a case needs that is not built yet; empty if it can be run.
std::string missing_for(const json& recorded) {
  static const std::set<std::string> kActivations{"tanh", "relu", "gelu"};
  static const std::set<std::string> kLosses{"mse", "cross_entropy"};
  static const std::map<std::string, std::set<std::string>> kOptimizers{
      {"SGD", {"type", "lr", "momentum", "weight_decay", "dampening", "nesterov"}},
      {"AdamW", {"type", "lr", "weight_decay", "betas", "eps"}}};
  if (recorded.at("mixed_precision") != "no") return "mixed precision";
  if (recorded.at("accumulation_steps") != 1) return "gradient accumulation";
  if (!recorded.at("clip").is_null() && !is_join(recorded)) return "gradient clipping";
  if (kActivations.count(recorded.at("activation")) == 0) return "another activation";
  if (kLosses.count(recorded.at("loss")) == 0) return "another loss";
  const auto known = kOptimizers.find(recorded.at("optimizer").at("type"));
  if (known == kOptimizers.end()) return "another optimizer";
  for (const auto& [key, value] : recorded.at("optimizer").items()) {
    if (known->second.count(key) == 0) return "optimizer option " + key;
  }
  return "";
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const json& settings,
                                                        std::vector<at::Tensor> parameters) {
  const double lr = settings.at("lr");
  if (settings.at("type") == "SGD") {
    return std::make_unique<torch::optim::SGD>(
        std::move(parameters), torch::optim::SGDOptions(lr)
                                   .momentum(settings.value("momentum", 0.0))
                                   .dampening(settings.value("dampening", 0.0))
                                   .weight_decay(settings.value("weight_decay", 0.0))
                                   .nesterov(settings.value("nesterov", false)));
  }
  const auto betas = settings.value("betas", std::vector<double>{0.9, 0.999});
  return std::make_unique<torch::optim::AdamW>(
      std::move(parameters), torch::optim::AdamWOptions(lr)
                                 .betas({betas.at(0), betas.at(1)})
                                 .eps(settings.value("eps", 1e-8))
                                 .weight_decay(settings.value("weight_decay", 0.01)));
}

at::Tensor matrix(const json& rows) {
  std::vector<at::Tensor> tensors;
  for (const json& row : rows) tensors.push_back(torch::tensor(row.get<std::vector<double>>()));
  return torch::stack(tensors).to(at::kFloat);
}

std::vector<double> values_of(const at::Tensor& tensor) {
  const at::Tensor doubles = tensor.detach().to(at::kDouble).contiguous();
  return {doubles.data_ptr<double>(), doubles.data_ptr<double>() + doubles.numel()};
}

std::vector<int64_t> integers_of(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.contiguous();
  return {whole.data_ptr<int64_t>(), whole.data_ptr<int64_t>() + whole.numel()};
}

DataLoader<TensorDataset> indices(int64_t n, LoaderOptions options) {
  return data_loader(TensorDataset(torch::arange(n), torch::arange(n)), options);
}

// One case on one rank. The samples of the loaders are indices into the recorded data.
class TrainingRun {
 public:
  TrainingRun(const json& all, const json& recorded, CaseLog& log)
      : recorded_(recorded),
        log_(log),
        accelerator_(
            {.cpu = true,
             .data_loader = {.split_batches = recorded.at("split_batches").get<bool>(),
                             .even_batches = recorded.at("even_batches").get<bool>(),
                             .dispatch_batches = recorded.at("dispatch_batches") == true}}),
        x_(matrix(all.at("data").at("x"))),
        y_(matrix(all.at("data").at("y"))),
        label_(torch::tensor(all.at("data").at("class").get<std::vector<int64_t>>())),
        network_(std::make_shared<Network>(all.at("model"), recorded.at("activation"))) {
    torch::NoGradGuard no_grad;
    for (auto& item : network_->named_parameters()) {
      const auto initial = all.at("initial").at(item.key()).get<std::vector<double>>();
      item.value().copy_(torch::tensor(initial, at::kDouble).view(item.value().sizes()));
    }
  }

  void train() {
    auto torch_optimizer = make_optimizer(recorded_.at("optimizer"), network_->parameters());
    auto [model, optimizer, loader] = accelerator_.prepare(
        network_, *torch_optimizer,
        indices(recorded_.at("n"), {.batch_size = recorded_.at("batch_size").get<int64_t>(),
                                    .drop_last = recorded_.at("drop_last").get<bool>()}));
    const json& steps = recorded_.at("micro_steps");
    const size_t rank = static_cast<size_t>(accelerator_.process_index());
    size_t count = 0;
    const auto run_epoch = [&, &model = model, &optimizer = optimizer, &loader = loader] {
      for (auto& batch : loader) {
        if (count < steps.size()) step(model, optimizer, batch.data, steps.at(count), rank, count);
        ++count;
      }
    };
    for (int epoch = 0; epoch < recorded_.at("epochs").get<int>(); ++epoch) {
      if (is_join(recorded_)) {
        accelerator_.join_uneven_inputs(run_epoch, {.divide_by = JoinDivisor::kAllRanks}, model);
      } else {
        run_epoch();
      }
    }
    // A rank that has run out of data has no entry in the later steps.
    const auto own_steps = std::ranges::count_if(steps, [&](const json& recorded_step) {
      return !recorded_step.at("indices_per_rank").at(rank).is_null();
    });
    log_.expect_equal("number of micro-steps", count, static_cast<size_t>(own_steps));
    if (rank == 0) {
      log_.expect_equal("number of updates", count,
                        recorded_.at("params_after_each_update").size());
    }
    for (const auto& item : network_->named_parameters()) {
      log_.expect_near("final " + item.key(), values_of(item.value()),
                       recorded_.at("final_params").at(item.key()).get<std::vector<double>>(),
                       kFloat32);
    }
    evaluate(model);
  }

 private:
  template <typename Model>
  void step(Model& model, PreparedOptimizer& optimizer, const at::Tensor& samples,
            const json& expected, size_t rank, size_t count) {
    const std::string here = " in micro-step " + std::to_string(count);
    log_.expect_equal("samples" + here, integers_of(samples),
                      expected.at("indices_per_rank").at(rank).get<std::vector<int64_t>>());
    // Schedules are not built yet: the rate is set as it was recorded.
    for (auto& group : optimizer.param_groups()) group.options().set_lr(expected.at("lr_used"));
    optimizer.zero_grad();
    const at::Tensor output = model(x_.index_select(0, samples));
    const at::Tensor loss =
        recorded_.at("loss") == "mse"
            ? torch::mse_loss(output, y_.index_select(0, samples))
            : torch::nn::functional::cross_entropy(output, label_.index_select(0, samples));
    accelerator_.backward(loss);
    if (!recorded_.at("clip").is_null()) clip(expected, rank, here);
    optimizer.step();
    log_.expect_near("loss" + here, {loss.item<double>()},
                     {expected.at("loss_per_rank").at(rank).get<double>()}, kFloat32);
    if (expected.contains("reduced_mean_loss")) {
      log_.expect_near("mean loss over the ranks" + here,
                       values_of(accelerator_.reduce(loss, ReduceOp::kMean)),
                       {expected.at("reduced_mean_loss").get<double>()}, kFloat32);
    }
    // In a join the ranks' optimizers go apart: rank 0 is what was recorded.
    if (is_join(recorded_) && rank != 0) return;
    const json& names = recorded_.at("parameter_names");
    const auto parameters = network_->named_parameters();
    for (size_t i = 0; i < names.size(); ++i) {
      log_.expect_near(
          names.at(i).get<std::string>() + " after update" + here,
          values_of(parameters[names.at(i).get<std::string>()]),
          recorded_.at("params_after_each_update").at(count).at(i).get<std::vector<double>>(),
          kFloat32);
    }
  }

  void clip(const json& expected, size_t rank, const std::string& here) {
    const double norm = torch::nn::utils::clip_grad_norm_(
        network_->parameters(), recorded_.at("clip").at("max").get<double>());
    const json& recorded_norm = expected.contains("grad_norm_per_rank")
                                    ? expected.at("grad_norm_per_rank").at(rank)
                                    : expected.at("grad_norm");
    log_.expect_near("norm of the gradient" + here, {norm}, {recorded_norm.get<double>()},
                     kFloat32);
  }

  // Outputs are compared where the record has them: for the samples that are no repetition.
  template <typename Model>
  void evaluate(Model& model) {
    torch::NoGradGuard no_grad;
    model.eval();
    const int64_t each = recorded_.at("eval_batch_size");
    const bool split = recorded_.at("split_batches");
    auto loader = accelerator_.prepare(
        indices(recorded_.at("eval_n"),
                {.batch_size = split ? each * accelerator_.num_processes() : each}));
    const json& expected = recorded_.at("eval");
    size_t count = 0;
    for (auto& batch : loader) {
      const at::Tensor samples = accelerator_.gather(batch.data);
      const at::Tensor real = accelerator_.gather(batch.info().valid_mask());
      const at::Tensor outputs = accelerator_.gather(model(x_.index_select(0, batch.data)));
      if (count < expected.size()) {
        const std::string here = " in evaluation " + std::to_string(count);
        const json& entry = expected.at(count);
        log_.expect_equal("gathered samples" + here, integers_of(samples),
                          entry.at("gather_indices").get<std::vector<int64_t>>());
        log_.expect_equal("real samples" + here, integers_of(samples.masked_select(real)),
                          entry.at("gather_for_metrics_indices").get<std::vector<int64_t>>());
        log_.expect_equal("is_last" + here, batch.info().is_last,
                          entry.at("end_of_dataloader").get<bool>());
        const json& rows = entry.at("gather_for_metrics_outputs");
        for (size_t row = 0; row < rows.size(); ++row) {
          log_.expect_near("gathered output " + std::to_string(row) + here,
                           values_of(outputs[static_cast<int64_t>(row)]),
                           rows.at(row).get<std::vector<double>>(), kFloat32);
        }
      }
      ++count;
    }
    log_.expect_equal("number of evaluation batches", count, expected.size());
  }

  const json& recorded_;
  CaseLog& log_;
  Accelerator accelerator_;
  at::Tensor x_, y_, label_;
  std::shared_ptr<Network> network_;
};

struct FixturesOnRanks : Ranks {};

TEST_F(FixturesOnRanks, DdpTraining) {
  LOAD_FIXTURE_OR_SKIP(fixture, "ddp_training.json");
  std::map<int, std::vector<json>> by_world_size;
  for (const json& recorded : fixture.at("cases")) {
    if (missing_for(recorded).empty()) {
      by_world_size[recorded.at("num_processes")].push_back(recorded);
    }
  }
  if (by_world_size.empty()) GTEST_SKIP() << "every case needs what is not built yet";
  for (const auto& [world_size, cases] : by_world_size) {
    run(world_size,
        [&](const Rank&) {
          CaseLog log;
          for (const json& recorded : cases) {
            log.run(inputs_of(recorded), [&] { TrainingRun(fixture, recorded, log).train(); });
          }
          log.report();
        },
        {.deadline = std::chrono::seconds(120)});
  }
}

// One test for each thing that cases wait for.
class Waiting : public testing::Test {
 public:
  explicit Waiting(std::string why) : why_(std::move(why)) {}
  void TestBody() override { GTEST_SKIP() << why_; }

 private:
  std::string why_;
};

[[maybe_unused]] const bool kListed = [] {
  ReferenceFile fixture;
  try {
    fixture = load_reference(fixtures_folder(), "ddp_training.json");
  } catch (const std::exception&) {
    return false;  // DdpTraining itself fails then
  }
  if (!fixture.json.has_value()) return false;
  std::map<std::string, int> waiting;
  for (const json& recorded : fixture.json->at("cases")) ++waiting[missing_for(recorded)];
  for (const auto& [need, cases] : waiting) {
    if (need.empty()) continue;
    std::string name = need;
    std::ranges::replace(name, ' ', '_');
    const std::string why = need + " is not built yet: " + std::to_string(cases) + " cases";
    testing::RegisterTest("DdpTrainingWaitsFor", name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [why]() -> testing::Test* { return new Waiting(why); });
  }
  return true;
}();

}  // namespace
}  // namespace accelerate::test

// Training of a small network on real ranks against the recorded run of the reference: the same
// samples, losses and parameters.
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <map>

#include "golden/case_log.h"
#include "golden/recorded_optimizers.h"
#include "golden/recorded_schedules.h"
#include "golden/reference_data.h"
#include "golden/training_replay.h"
#include "support/ranks.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

// As fixtures/README.md says.
constexpr Tolerance kFloat32{.absolute = 1e-5, .relative = 1e-5};
constexpr Tolerance kBfloat16{.absolute = 1e-2, .relative = 1e-2};
constexpr Tolerance kTrainingRates{.absolute = 1e-12, .relative = 1e-9};

Tolerance tolerance_of(const json& recorded) {
  return recorded.at("mixed_precision") == "bf16" ? kBfloat16 : kFloat32;
}

bool is_join(const json& recorded) { return recorded.value("join", false); }

DataLoader<TensorDataset> indices(int64_t n, LoaderOptions options) {
  return data_loader(TensorDataset(torch::arange(n), torch::arange(n)), options);
}

AcceleratorOptions options_of(const json& recorded) {
  AcceleratorOptions options{.cpu = true,
                             .mixed_precision = recorded.at("mixed_precision").get<std::string>()};
  options.gradient_accumulation.steps = recorded.at("accumulation_steps").get<int64_t>();
  options.gradient_accumulation.sync_each_batch = recorded.at("sync_each_batch");
  options.scheduler.step_with_optimizer = recorded.at("step_scheduler_with_optimizer");
  options.data_loader.split_batches = recorded.at("split_batches");
  options.data_loader.even_batches = recorded.at("even_batches");
  options.data_loader.dispatch_batches = recorded.at("dispatch_batches") == true;
  return options;
}

// One case on one rank. The samples of the loaders are indices into the recorded data.
class TrainingRun {
 public:
  TrainingRun(const json& all, const json& recorded, CaseLog& log)
      : recorded_(recorded),
        log_(log),
        tolerance_(tolerance_of(recorded)),
        accelerator_(options_of(recorded)),
        data_(all),
        network_(make_network(all, recorded)) {}

  void train() {
    auto torch_optimizer = recorded_optimizer(recorded_.at("optimizer"), network_->parameters());
    auto [model, optimizer, scheduler, loader] = accelerator_.prepare(
        network_, *torch_optimizer, recorded_scheduler(recorded_.at("scheduler"), *torch_optimizer),
        indices(recorded_.at("n"), {.batch_size = recorded_.at("batch_size").get<int64_t>(),
                                    .drop_last = recorded_.at("drop_last").get<bool>()}));
    const json& steps = recorded_.at("micro_steps");
    size_t count = 0;
    const auto run_epoch = [&, &model = model, &optimizer = optimizer, &scheduler = scheduler,
                            &loader = loader] {
      for (auto& batch : loader) {
        if (count < steps.size()) {
          step(model, optimizer, scheduler, batch.data, steps.at(count), count);
        }
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
      return !recorded_step.at("indices_per_rank").at(rank()).is_null();
    });
    log_.expect_equal("number of micro-steps", count, static_cast<size_t>(own_steps));
    if (rank() == 0) {
      log_.expect_equal("number of updates", updates_,
                        recorded_.at("params_after_each_update").size());
    }
    for (const auto& item : network_->named_parameters()) {
      log_.expect_near("final " + item.key(), values_of(item.value()),
                       recorded_.at("final_params").at(item.key()).get<std::vector<double>>(),
                       tolerance_);
    }
    evaluate(model);
  }

 private:
  size_t rank() const { return static_cast<size_t>(accelerator_.process_index()); }

  template <typename Model>
  void step(Model& model, PreparedOptimizer& optimizer, PreparedScheduler& scheduler,
            const at::Tensor& samples, const json& expected, size_t count) {
    const std::string here = " in micro-step " + std::to_string(count);
    log_.expect_equal("samples" + here, integers_of(samples),
                      expected.at("indices_per_rank").at(rank()).get<std::vector<int64_t>>());
    const auto micro_batch = accelerator_.accumulate(model);
    const bool sync = expected.at("sync");
    log_.expect_equal("sync" + here, accelerator_.sync_gradients(), sync);
    expect_rate("rate of" + here, optimizer, expected.at("lr_used"));
    const at::Tensor output = model(data_.x.index_select(0, samples));
    const at::Tensor loss = data_.loss(recorded_, output, samples);
    accelerator_.backward(loss);
    if (sync && !recorded_.at("clip").is_null()) clip(expected, here);
    optimizer.step();
    scheduler.step();
    optimizer.zero_grad();
    expect_rate("rate after" + here, optimizer, expected.at("lr_after"));
    log_.expect_near("loss" + here, {loss.item<double>()},
                     {expected.at("loss_per_rank").at(rank()).get<double>()}, tolerance_);
    if (!is_join(recorded_)) expect_metrics(loss, samples, expected, here);
    if (sync) expect_parameters(here);
  }

  void expect_rate(const std::string& what, PreparedOptimizer& optimizer, double expected) {
    log_.expect_near(what, {optimizer.param_groups().at(0).options().get_lr()}, {expected},
                     kTrainingRates);
  }

  // The reference cuts one loss a rank as if it were one a sample; it is one a rank here.
  void expect_metrics(const at::Tensor& loss, const at::Tensor& samples, const json& expected,
                      const std::string& here) {
    log_.expect_near("mean loss over the ranks" + here,
                     values_of(accelerator_.reduce(loss.detach(), ReduceOp::kMean)),
                     {expected.at("reduced_mean_loss").get<double>()}, tolerance_);
    const auto [real, losses] = accelerator_.gather_for_metrics(samples, loss.detach());
    log_.expect_equal("real samples" + here, integers_of(real),
                      expected.at("gather_for_metrics_indices").get<std::vector<int64_t>>());
    log_.expect_near("losses for metrics" + here, values_of(losses),
                     expected.at("loss_per_rank").get<std::vector<double>>(), tolerance_);
  }

  // In a join the ranks' optimizers go apart: rank 0 is what was recorded.
  void expect_parameters(const std::string& here) {
    const size_t update = updates_++;
    if (is_join(recorded_) && rank() != 0) return;
    const json& names = recorded_.at("parameter_names");
    const json& expected = recorded_.at("params_after_each_update").at(update);
    const auto parameters = network_->named_parameters();
    for (size_t i = 0; i < names.size(); ++i) {
      const std::string name = names.at(i);
      log_.expect_near(name + " after update" + here, values_of(parameters[name]),
                       expected.at(i).get<std::vector<double>>(), tolerance_);
    }
  }

  void clip(const json& expected, const std::string& here) {
    const json& clip = recorded_.at("clip");
    if (clip.at("type") == "value") {
      accelerator_.clip_grad_value_(network_->parameters(), clip.at("max"));
      return;
    }
    if (clip.at("type") != "norm") throw std::runtime_error("no such clipping: " + clip.dump());
    const at::Tensor norm = accelerator_.clip_grad_norm_(network_->parameters(), clip.at("max"),
                                                         {.norm_type = norm_type_of(clip)});
    const json& recorded_norm = expected.contains("grad_norm_per_rank")
                                    ? expected.at("grad_norm_per_rank").at(rank())
                                    : expected.at("grad_norm");
    log_.expect_near("norm of the gradient" + here, values_of(norm), {recorded_norm.get<double>()},
                     tolerance_);
  }

  template <typename Model>
  void evaluate(Model& model) {
    const torch::NoGradGuard no_grad;
    model.eval();
    const int64_t each = recorded_.at("eval_batch_size");
    const bool split = recorded_.at("split_batches");
    auto loader = accelerator_.prepare(
        indices(recorded_.at("eval_n"),
                {.batch_size = split ? each * accelerator_.num_processes() : each}));
    const json& expected = recorded_.at("eval");
    size_t count = 0;
    for (auto& batch : loader) {
      const at::Tensor output = model(data_.x.index_select(0, batch.data));
      const at::Tensor samples = accelerator_.gather(batch.data);
      const auto [real, outputs, labels] = accelerator_.gather_for_metrics(
          batch.data, output, data_.label.index_select(0, batch.data));
      if (count < expected.size()) {
        const std::string here = " in evaluation " + std::to_string(count);
        const json& entry = expected.at(count);
        log_.expect_equal("gathered samples" + here, integers_of(samples),
                          entry.at("gather_indices").get<std::vector<int64_t>>());
        log_.expect_equal("real samples" + here, integers_of(real),
                          entry.at("gather_for_metrics_indices").get<std::vector<int64_t>>());
        log_.expect_equal("labels" + here, integers_of(labels),
                          entry.at("gather_for_metrics_labels").get<std::vector<int64_t>>());
        log_.expect_equal("is_last" + here, batch.info().is_last,
                          entry.at("end_of_dataloader").get<bool>());
        log_.expect_equal("outputs are float32" + here, outputs.scalar_type() == at::kFloat, true);
        log_.expect_near("outputs" + here, values_of(outputs),
                         values_of(matrix(entry.at("gather_for_metrics_outputs"))), tolerance_);
      }
      ++count;
    }
    log_.expect_equal("number of evaluation batches", count, expected.size());
  }

  const json& recorded_;
  CaseLog& log_;
  Tolerance tolerance_;
  Accelerator accelerator_;
  RecordedData data_;
  std::shared_ptr<Network> network_;
  size_t updates_ = 0;
};

bool has_short_window(const json& recorded) {
  return std::ranges::any_of(window_lengths(recorded), [&](int64_t length) {
    return length < recorded.at("accumulation_steps").get<int64_t>();
  });
}

// B11: the reference divides the losses of a short last window by accumulation_steps. What is right
// is derived by running the case again in plain libtorch with the length that the window has. That
// the same run with the reference's divisor gives the recorded numbers shows that it is the same.
json corrected(const json& all, const json& recorded, CaseLog& log) {
  const json again = replay(all, recorded, false);
  for (const auto& [name, values] : recorded.at("final_params").items()) {
    log.expect_near("replayed " + name,
                    again.at("final_params").at(name).get<std::vector<double>>(),
                    values.get<std::vector<double>>(), tolerance_of(recorded));
  }
  for (size_t i = 0; i < recorded.at("micro_steps").size(); ++i) {
    log.expect_near("replayed losses of micro-step " + std::to_string(i),
                    again.at("micro_steps").at(i).at("loss_per_rank").get<std::vector<double>>(),
                    recorded.at("micro_steps").at(i).at("loss_per_rank").get<std::vector<double>>(),
                    tolerance_of(recorded));
  }
  return replay(all, recorded, true);
}

struct FixturesOnRanks : Ranks {};

TEST_F(FixturesOnRanks, DdpTraining) {
  const json fixture = load_fixture("ddp_training.json");
  for (const auto& [world_size, cases] : by_world_size(fixture.at("cases"))) {
    run(world_size,
        [&, &cases = cases](const Rank&) {
          CaseLog log;
          for (const json& recorded : cases) {
            log.run(inputs_of(recorded), [&] {
              const json expected =
                  has_short_window(recorded) ? corrected(fixture, recorded, log) : recorded;
              TrainingRun(fixture, expected, log).train();
            });
          }
          log.report();
        },
        {.deadline = std::chrono::seconds(120)});
  }
}

}  // namespace
}  // namespace accelerate::test

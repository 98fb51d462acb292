// A prepared training loop in one process against the same loop written by hand with libtorch.
#include <CLI/CLI.hpp>

#include "main.h"
#include "paired_times.h"
#include "report.h"
#include "training_loop.h"

namespace bench {
namespace {

class HandLoop final : public TrainingLoop {
 public:
  explicit HandLoop(const Task& task)
      : batches_(task, /*rank=*/0, /*world_size=*/1),
        model_(make_model(task)),
        optimizer_(make_optimizer(task, model_->parameters())) {}

  void step() override {
    const TrainingData batch = batches_.next();
    optimizer_->zero_grad();
    auto loss = torch::nn::functional::cross_entropy(model_(batch.inputs), batch.labels);
    loss.backward();
    optimizer_->step();
    loss_ = loss;
  }

  std::vector<at::Tensor> parameters() const override { return model_->parameters(); }

 private:
  HandBatches batches_;
  Mlp model_;
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
};

// The hand-written loop is also measured against a second one of its kind: the noise of the method.
nlohmann::json run(const Task& task, int rounds, int pairs) {
  PairedTimes prepared_times;
  PairedTimes control_times;
  for (int round = 0; round < rounds; ++round) {
    accelerate::Accelerator accelerator({.cpu = true});
    std::optional<PreparedLoop> prepared;
    std::optional<HandLoop> hand;
    std::optional<HandLoop> control;
    make_in_changing_order({[&] { prepared.emplace(accelerator, task); },
                            [&] { hand.emplace(task); }, [&] { control.emplace(task); }},
                           round);
    for (TrainingLoop* loop : std::initializer_list<TrainingLoop*>{&*prepared, &*hand, &*control}) {
      warm_up(*loop);
      require_equal_parameters(*loop, *prepared);
    }
    prepared_times.measure(*prepared, *hand, pairs, [] {});
    control_times.measure(*control, *hand, pairs, [] {});
  }
  return {{"name", "prepared loop against hand-written loop, one process"},
          {"optimizer", task.optimizer},
          {"hidden", task.hidden},
          {"batch_size", task.batch_size},
          {"prepared_against_hand", prepared_times.report()},
          {"hand_against_hand", control_times.report()}};
}

int main(int argc, char** argv) {
  Task task;
  int threads = 1;
  int rounds = 18;
  int pairs = 20;
  std::string json_file;
  CLI::App app("Times a prepared training loop against the same loop written by hand, in turns");
  app.add_option("--optimizer", task.optimizer, "sgd or adamw")
      ->check(CLI::IsMember({"sgd", "adamw"}));
  app.add_option("--hidden", task.hidden, "Width of the hidden layers");
  app.add_option("--batch_size", task.batch_size, "Samples of a step");
  app.add_option("--threads", threads, "Threads of torch");
  app.add_option("--rounds", rounds, "How often models and optimizers are created again");
  app.add_option("--pairs", pairs, "Comparisons in a round");
  app.add_option("--json", json_file, "File for the results");
  CLI11_PARSE(app, argc, argv);

  torch::set_num_threads(threads);
  publish(run(task, rounds, pairs), argc, argv, json_file);
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run_main("bench_loop", bench::main, argc, argv); }

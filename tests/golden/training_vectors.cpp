// Training of a line through points against the recorded parameters of the reference.
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <map>

#include "golden/case_log.h"
#include "golden/reference_data.h"
#include "support/ranks.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

constexpr Tolerance kTight{.absolute = 1e-9, .relative = 1e-9};

// y = a x + b in float64, both 0 at the start.
struct GoldenLine : torch::nn::Module {
  GoldenLine()
      : a(register_parameter("a", torch::zeros({1}, at::kDouble))),
        b(register_parameter("b", torch::zeros({1}, at::kDouble))) {}
  at::Tensor forward(const at::Tensor& x) { return a * x + b; }

  at::Tensor a, b;
};

at::Tensor first_values(const json& values, int64_t n) {
  return torch::tensor(values.get<std::vector<double>>(), at::kDouble).narrow(0, 0, n).clone();
}

// A micro-batch of all ranks, one row a rank, and whether it ends its window.
struct MicroBatch {
  at::Tensor x, y;
  bool sync;
};

// What each update does.
struct Updates {
  std::vector<std::vector<double>> parameters;
  std::vector<double> norms;
};

Updates recorded_updates(const json& recorded) {
  return {recorded.at("params_a_b_after_each_update").get<std::vector<std::vector<double>>>(),
          recorded.at("grad_norm_before_each_update").get<std::vector<double>>()};
}

void note_gradient(const GoldenLine& line, Updates& updates) {
  updates.norms.push_back(std::hypot(line.a.grad().item<double>(), line.b.grad().item<double>()));
}
void note_parameters(const GoldenLine& line, Updates& updates) {
  updates.parameters.push_back({line.a.item<double>(), line.b.item<double>()});
}

void expect_updates(const std::string& which, const Updates& actual, const Updates& expected,
                    CaseLog& log) {
  log.expect_near(which + " gradient norms", actual.norms, expected.norms, kTight);
  log.expect_equal("number of " + which + " updates", actual.parameters.size(),
                   expected.parameters.size());
  for (size_t i = 0; i < std::min(actual.parameters.size(), expected.parameters.size()); ++i) {
    log.expect_near(which + " (a, b) after update " + std::to_string(i), actual.parameters[i],
                    expected.parameters[i], kTight);
  }
}

// The same training in one process in plain libtorch: the mean over the ranks of each micro-batch,
// summed over a window and divided by `steps`, or by the length of the window if that is 0.
Updates replay(const std::vector<MicroBatch>& micro_batches, double lr, int64_t steps) {
  GoldenLine line;
  torch::optim::SGD sgd(line.parameters(), lr);
  Updates updates;
  std::vector<at::Tensor> losses;
  for (const MicroBatch& batch : micro_batches) {
    losses.push_back(torch::mse_loss(line.forward(batch.x), batch.y));
    if (!batch.sync) continue;
    const auto length = static_cast<int64_t>(losses.size());
    (torch::stack(losses).sum() / (steps > 0 ? steps : length)).backward();
    losses.clear();
    note_gradient(line, updates);
    sgd.step();
    sgd.zero_grad();
    note_parameters(line, updates);
  }
  return updates;
}

void train_golden(const json& all, const json& recorded, CaseLog& log) {
  const int64_t steps = recorded.at("accumulation_steps");
  const double lr = recorded.at("lr");
  Accelerator accelerator(
      {.cpu = true,
       .gradient_accumulation = {.steps = steps,
                                 .sync_each_batch = recorded.at("sync_each_batch").get<bool>()},
       .data_loader = {.split_batches = recorded.at("split_batches").get<bool>()}});
  const int64_t n = recorded.at("n");
  const auto points =
      data_loader(TensorDataset(first_values(all.at("x"), n), first_values(all.at("y"), n)),
                  {.batch_size = recorded.at("batch_size").get<int64_t>()});
  auto line = std::make_shared<GoldenLine>();
  torch::optim::SGD sgd(line->parameters(), lr);
  auto [model, optimizer, loader] = accelerator.prepare(line, sgd, points);

  Updates updates;
  std::vector<MicroBatch> micro_batches;
  for (int epoch = 0; epoch < recorded.at("epochs").get<int>(); ++epoch) {
    for (auto& batch : loader) {
      const auto micro_batch = accelerator.accumulate(model);
      accelerator.backward(torch::mse_loss(model(batch.data), batch.target));
      const bool sync = accelerator.sync_gradients();
      if (sync) note_gradient(*line, updates);
      optimizer.step();
      optimizer.zero_grad();
      if (sync) note_parameters(*line, updates);
      micro_batches.push_back({accelerator.gather(batch.data.unsqueeze(0)),
                               accelerator.gather(batch.target.unsqueeze(0)), sync});
    }
  }
  log.expect_equal("num_updates", updates.parameters.size(),
                   recorded.at("num_updates").get<size_t>());
  const bool divided_by_too_much = recorded.value("upstream_bug", "") == "B11";
  // B11: the reference divides a short last window by accumulation_steps. The right numbers come
  // from a replay with the length that the window has; the replay with the reference's divisor
  // gives the recorded ones, which shows that it is the same training.
  if (divided_by_too_much) {
    expect_updates("replayed", replay(micro_batches, lr, steps), recorded_updates(recorded), log);
  }
  const Updates expected =
      divided_by_too_much ? replay(micro_batches, lr, 0) : recorded_updates(recorded);
  expect_updates("trained", updates, expected, log);
}

struct VectorsOnRanks : Ranks {};

TEST_F(VectorsOnRanks, GoldenTraining) {
  const json vectors = load_vectors("golden_training.json");
  for (const auto& [world_size, cases] : by_world_size(vectors.at("cases"))) {
    run(world_size,
        [&, &cases = cases](const Rank&) {
          CaseLog log;
          for (const json& recorded : cases) {
            log.run(inputs_of(recorded), [&] { train_golden(vectors, recorded, log); });
          }
          log.report();
        },
        {.deadline = std::chrono::seconds(120)});
  }
}

}  // namespace
}  // namespace accelerate::test

// The search for a batch size and local SGD against what the reference does.
#include <accelerate/accelerate.h>
#include <accelerate/find_batch_size.h>
#include <accelerate/local_sgd.h>
#include <torch/torch.h>

#include <stdexcept>

#include "golden/case_log.h"
#include "golden/reference_data.h"
#include "support/ranks.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

struct HelperVectors : Ranks {};

TEST_F(HelperVectors, FindExecutableBatchSize) {
  const json all = load_vectors("find_executable_batch_size.json");
  run(1, [&](const Rank&) {
    CaseLog log;
    for (const json& recorded : all) {
      log.run(recorded, [&] {
        const int64_t largest = recorded.at("largest_that_fits");
        std::vector<int64_t> tried;
        json result;
        try {
          result = find_executable_batch_size(
              [&](int64_t size) {
                tried.push_back(size);
                if (size > largest) throw std::runtime_error("CUDA out of memory.");
                return size;
              },
              {.starting_batch_size = recorded.at("starting_batch_size").get<int64_t>()});
        } catch (const UsageError& error) {
          result = "RuntimeError: " + error.message();  // Python's kind of error
        }
        log.expect_equal("tried", tried, recorded.at("tried").get<std::vector<int64_t>>());
        log.expect_equal("result", result, recorded.at("result"));
      });
    }
    log.report();
  });
}

TEST_F(HelperVectors, ShouldReduceBatchSize) {
  const json all = load_vectors("should_reduce_batch_size.json");
  run(1, [&](const Rank&) {
    CaseLog log;
    for (const json& recorded : all) {
      log.run(recorded, [&] {
        const std::runtime_error error(recorded.at("message").get<std::string>());
        log.expect_equal("verdict", should_reduce_batch_size(error),
                         recorded.at("expected").get<bool>());
      });
    }
    log.report();
  });
}

// y = a x + b in float64, both 0 at the start.
struct LocalSgdLine : torch::nn::Module {
  LocalSgdLine()
      : a(register_parameter("a", torch::zeros({1}, at::kDouble))),
        b(register_parameter("b", torch::zeros({1}, at::kDouble))) {}
  at::Tensor forward(const at::Tensor& x) { return a * x + b; }
  std::vector<double> values() const { return {a.item<double>(), b.item<double>()}; }

  at::Tensor a, b;
};

void train_with_local_sgd(const json& all, const json& recorded, CaseLog& log) {
  constexpr Tolerance kTight{.absolute = 1e-9, .relative = 1e-9};
  Accelerator accelerator({.cpu = true});
  const auto tensor_of = [&](const char* name) {
    return torch::tensor(all.at(name).get<std::vector<double>>(), at::kDouble)
        .narrow(0, 0, recorded.at("n").get<int64_t>())
        .clone();
  };
  const auto points = data_loader(TensorDataset(tensor_of("x"), tensor_of("y")),
                                  {.batch_size = recorded.at("batch_size").get<int64_t>()});
  auto line = std::make_shared<LocalSgdLine>();
  torch::optim::SGD sgd(line->parameters(), recorded.at("lr").get<double>());
  auto [model, optimizer, loader] = accelerator.prepare(line, sgd, points);
  const auto rank = static_cast<size_t>(accelerator.process_index());
  const json& steps = recorded.at("params_a_b_after_each_step_per_rank").at(rank);
  size_t step = 0;
  {
    LocalSgd local_sgd(accelerator.communicator(), model,
                       {.local_sgd_steps = recorded.at("local_sgd_steps").get<int64_t>()});
    for (auto& batch : loader) {
      optimizer.zero_grad();
      accelerator.backward(torch::mse_loss(model(batch.data), batch.target));
      optimizer.step();
      local_sgd.step();
      if (step < steps.size()) {
        log.expect_near("(a, b) after step " + std::to_string(step), line->values(),
                        steps.at(step).get<std::vector<double>>(), kTight);
      }
      ++step;
    }
  }
  log.expect_equal("steps", step, steps.size());
  log.expect_near("(a, b) at the end", line->values(),
                  recorded.at("final_per_rank").at(rank).get<std::vector<double>>(), kTight);
}

TEST_F(HelperVectors, LocalSgd) {
  const json all = load_vectors("local_sgd.json");
  for (const auto& [world_size, cases] : by_world_size(all.at("cases"))) {
    run(world_size, [&, &cases = cases](const Rank&) {
      CaseLog log;
      for (const json& recorded : cases) {
        log.run(inputs_of(recorded), [&] { train_with_local_sgd(all, recorded, log); });
      }
      log.report();
    });
  }
}

}  // namespace
}  // namespace accelerate::test

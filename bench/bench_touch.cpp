// What an operation on a parameter in a unit costs more than on a plain one, where the unit is
// whole already.
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "report.h"
#include "residency/touch/touched_units.h"
#include "turns.h"

namespace bench {
namespace {

using accelerate::residency::GatherCall;
using accelerate::residency::ShardGatherer;
using accelerate::residency::TouchedUnits;
using accelerate::residency::UnitParameters;

// One rank, which has everything.
struct OwnShard final : ShardGatherer {
  std::function<void()> begin(const GatherCall& call) override {
    at::Tensor whole = call.whole;
    whole.copy_(call.shard);
    return [] {};
  }
  void broadcast(at::Tensor /*whole*/, int /*rank*/) override {}
};

double cost_of(const std::function<void()>& call, int64_t calls) {
  const Stopwatch watch;
  for (int64_t i = 0; i < calls; ++i) call();
  return watch.seconds() / static_cast<double>(calls) * 1e9;
}

// Nanoseconds of a call on the plain parameter and on that in a unit: the best of runs that take
// turns.
nlohmann::json compare(const std::function<void()>& plain, const std::function<void()>& touched,
                       int64_t calls) {
  double best_plain = 1e18;
  double best_touched = 1e18;
  for (int run = 0; run < 7; ++run) {
    best_plain = std::min(best_plain, cost_of(plain, calls));
    best_touched = std::min(best_touched, cost_of(touched, calls));
  }
  return {{"plain_ns", best_plain},
          {"touched_ns", best_touched},
          {"added_ns", best_touched - best_plain}};
}

nlohmann::json costs(int64_t calls) {
  torch::manual_seed(1);
  torch::nn::Linear plain(8, 8);
  torch::nn::Linear touched(8, 8);
  {
    const torch::NoGradGuard no_grad;
    touched->weight.copy_(plain->weight);
    touched->bias.copy_(plain->bias);
  }
  std::vector<UnitParameters> units(1);
  units[0] = {.name = "linear",
              .parameters = {touched->weight, touched->bias},
              .names = {"weight", "bias"}};
  const TouchedUnits kept(std::move(units), 0, 1, std::make_shared<OwnShard>(), {});
  const at::Tensor x = torch::ones({1, 8});
  if (!plain->forward(x).equal(touched->forward(x))) throw std::runtime_error("other digits");

  nlohmann::json result;
  const auto measure = [&](const char* name, auto call) {
    result[name] = compare([&] { call(*plain); }, [&] { call(*touched); }, calls);
  };
  using Layer = torch::nn::LinearImpl;
  {
    const torch::NoGradGuard no_grad;
    measure("sum of two vectors", [&](Layer& layer) { return at::add(layer.bias, layer.bias); });
    measure("view", [&](Layer& layer) { return layer.weight.view({64}); });
    measure("linear layer without gradients", [&](Layer& layer) { return layer.forward(x); });
  }
  measure("linear layer, forward and backward", [&](Layer& layer) {
    layer.forward(x).sum().backward();
    layer.zero_grad();
  });
  return result;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  CLI::App app{"What it costs to touch a parameter that is whole"};
  int64_t calls = 20'000;
  std::string json_file;
  app.add_option("--calls", calls, "Calls in a run")->check(CLI::PositiveNumber);
  app.add_option("--json", json_file, "Also write the result to this file");
  CLI11_PARSE(app, argc, argv);
  torch::set_num_threads(1);
  bench::publish({{"costs", bench::costs(calls)}}, argc, argv, json_file);
  return 0;
}

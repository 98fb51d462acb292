// What a profile costs a step: open and idle, recording, and what comes at its end.
#include <accelerate/accelerate.h>
#include <torch/torch.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "report.h"

namespace bench {
namespace {

using Seconds = std::chrono::duration<double>;
using ProfileClock = std::chrono::steady_clock;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct ProfiledLoop {
  accelerate::Accelerator accelerator;
  torch::nn::Sequential net{torch::nn::Linear(64, 128), torch::nn::ReLU(),
                            torch::nn::Linear(128, 64), torch::nn::ReLU(),
                            torch::nn::Linear(64, 8)};
  torch::optim::AdamW adamw{net->parameters(), 1e-3};
  decltype(accelerator.prepare(net)) model = accelerator.prepare(net);
  accelerate::PreparedOptimizer optimizer = accelerator.prepare(adamw);
  torch::Tensor input = torch::randn({32, 64}, accelerator.device());

  void step() {
    accelerator.backward(model(input).square().mean());
    optimizer.step();
    optimizer.zero_grad();
  }
};

struct Variant {
  const char* name;
  std::optional<accelerate::ProfileOptions> options;
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  using namespace bench;
  CLI::App app{"What a profile costs"};
  int64_t steps = 300;
  int64_t rounds = 15;
  std::string json_file;
  app.add_option("--steps", steps, "of each kind in a round")->capture_default_str();
  app.add_option("--rounds", rounds, "in which the kinds take turns")->capture_default_str();
  app.add_option("--json", json_file, "write the results to this file");
  CLI11_PARSE(app, argc, argv);

  ProfiledLoop loop;
  const accelerate::ProfileOptions idle{.schedule = {{.wait = int64_t{1} << 40}}};
  const std::vector<Variant> variants = {
      {"without a profile", std::nullopt},
      {"idle", idle},
      {"recording", accelerate::ProfileOptions{}},
      {"recording shapes and memory",
       accelerate::ProfileOptions{.record_shapes = true, .profile_memory = true}}};
  std::vector<std::vector<double>> step_us(variants.size());
  std::vector<double> end_us;
  std::vector<double> export_us;
  const auto file = std::filesystem::temp_directory_path() /
                    ("bench_profile_" + std::to_string(::getpid()) + ".json");
  for (int64_t i = 0; i < steps; ++i) loop.step();
  for (int64_t round = 0; round < rounds; ++round) {
    for (size_t kind = 0; kind < variants.size(); ++kind) {
      std::optional<accelerate::Profile> profile;
      if (variants[kind].options)
        profile.emplace(loop.accelerator.profile(*variants[kind].options));
      const auto begin = ProfileClock::now();
      for (int64_t i = 0; i < steps; ++i) {
        loop.step();
        if (profile) profile->step();
      }
      const auto end = ProfileClock::now();
      step_us[kind].push_back(Seconds(end - begin).count() * 1e6 / static_cast<double>(steps));
      if (!profile) continue;
      profile->end();
      if (kind != 2) continue;
      const auto ended = ProfileClock::now();
      profile->trace()->export_chrome_trace(file);
      end_us.push_back(Seconds(ended - end).count() * 1e6 / static_cast<double>(steps));
      export_us.push_back(Seconds(ProfileClock::now() - ended).count() * 1e6 /
                          static_cast<double>(steps));
    }
  }
  nlohmann::json results;
  const double without = median(step_us[0]);
  for (size_t kind = 0; kind < variants.size(); ++kind) {
    results[variants[kind].name] = {{"step_us", median(step_us[kind])},
                                    {"more_percent", 100 * (median(step_us[kind]) / without - 1)}};
  }
  results["recording"]["end_us_a_step"] = median(end_us);
  results["recording"]["export_us_a_step"] = median(export_us);
  results["recording"]["bytes_a_step"] =
      static_cast<double>(std::filesystem::file_size(file)) / static_cast<double>(steps);
  std::filesystem::remove(file);
  publish(results, argc, argv, json_file);
}

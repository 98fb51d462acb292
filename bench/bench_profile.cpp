// What a profile costs a step: open and idle, recording, and what comes at its end.
#include <accelerate/accelerate.h>
#include <torch/torch.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "report.h"

namespace bench {
namespace {

// Of one kind of clock, in microseconds: processors' time is the same on a busy machine.
double clock_us(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

struct Costs {
  std::vector<double> wall_us{};
  std::vector<double> thread_us{};   // of the one that trains
  std::vector<double> process_us{};  // and those beside it
};

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
  std::vector<Costs> costs(variants.size());
  std::vector<double> end_us;
  std::vector<double> export_us;
  const auto file = std::filesystem::temp_directory_path() /
                    ("bench_profile_" + std::to_string(::getpid()) + ".json");
  const auto count = static_cast<double>(steps);
  for (int64_t i = 0; i < steps; ++i) loop.step();
  for (int64_t round = 0; round < rounds; ++round) {
    for (size_t kind = 0; kind < variants.size(); ++kind) {
      std::optional<accelerate::Profile> profile;
      if (variants[kind].options)
        profile.emplace(loop.accelerator.profile(*variants[kind].options));
      const double wall = clock_us(CLOCK_MONOTONIC);
      const double thread = clock_us(CLOCK_THREAD_CPUTIME_ID);
      const double process = clock_us(CLOCK_PROCESS_CPUTIME_ID);
      for (int64_t i = 0; i < steps; ++i) {
        loop.step();
        if (profile) profile->step();
      }
      const double thread_end = clock_us(CLOCK_THREAD_CPUTIME_ID);
      costs[kind].process_us.push_back((clock_us(CLOCK_PROCESS_CPUTIME_ID) - process) / count);
      costs[kind].thread_us.push_back((thread_end - thread) / count);
      costs[kind].wall_us.push_back((clock_us(CLOCK_MONOTONIC) - wall) / count);
      if (!profile) continue;
      const double begin = clock_us(CLOCK_THREAD_CPUTIME_ID);
      profile->end();
      if (kind != 2) continue;
      const double ended = clock_us(CLOCK_THREAD_CPUTIME_ID);
      profile->trace()->export_chrome_trace(file);
      end_us.push_back((ended - begin) / count);
      export_us.push_back((clock_us(CLOCK_THREAD_CPUTIME_ID) - ended) / count);
    }
  }
  nlohmann::json results;
  const double without = median(costs[0].thread_us);
  for (size_t kind = 0; kind < variants.size(); ++kind) {
    results[variants[kind].name] = {
        {"wall_us", median(costs[kind].wall_us)},
        {"thread_us", median(costs[kind].thread_us)},
        {"process_us", median(costs[kind].process_us)},
        {"more_percent", 100 * (median(costs[kind].thread_us) / without - 1)}};
  }
  results["recording"]["end_us_a_step"] = median(end_us);
  results["recording"]["export_us_a_step"] = median(export_us);
  results["recording"]["bytes_a_step"] =
      static_cast<double>(std::filesystem::file_size(file)) / count;
  std::filesystem::remove(file);
  publish(results, argc, argv, json_file);
}

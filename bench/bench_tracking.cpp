// What log() costs the thread that trains, and how fast the writer is.
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "report.h"

namespace bench {
namespace {

using Seconds = std::chrono::duration<double>;
using TrackingClock = std::chrono::steady_clock;

double percentile(std::vector<double>& sorted, double share) {
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
}

void require_lines(const std::filesystem::path& path, int64_t expected) {
  std::ifstream file(path);
  int64_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  if (lines == expected) return;
  throw std::runtime_error(path.string() + " has " + std::to_string(lines) + " lines of " +
                           std::to_string(expected));
}

// Of `calls` calls one by one, in nanoseconds, and of all of them together with what is written
// after the last one.
nlohmann::json cost_of_log(const std::string& tracker, int64_t calls,
                           const std::function<void(accelerate::Accelerator&, int64_t)>& log) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("bench_tracking_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  accelerate::AcceleratorOptions options;
  options.project.project_dir = folder;
  options.log_with = {tracker};
  nlohmann::json result;
  {
    accelerate::Accelerator accelerator(options);
    // All of them fit: a call that is dropped would cost less.
    accelerator.init_trackers("bench", {},
                              {.mlflow = {.tracking_uri = (folder / "mlruns").string()},
                               .queue_capacity = static_cast<size_t>(2 * calls)});
    for (int64_t i = 0; i < calls; ++i) log(accelerator, i);  // places of the queue get memory
    std::vector<double> each(static_cast<size_t>(calls));
    const auto begin = TrackingClock::now();
    auto before = begin;
    for (int64_t i = 0; i < calls; ++i) {
      log(accelerator, calls + i);
      const auto now = TrackingClock::now();
      each[static_cast<size_t>(i)] = Seconds(now - before).count() * 1e9;
      before = now;
    }
    accelerator.end_training();
    const double whole = Seconds(TrackingClock::now() - begin).count();
    if (tracker == "jsonl") require_lines(folder / "bench/metrics.jsonl", 2 * calls);
    std::ranges::sort(each);
    result = {{"p50_ns", percentile(each, 0.5)},
              {"p99_ns", percentile(each, 0.99)},
              {"largest_us", each.back() / 1e3},
              {"calls_a_second_to_disk", static_cast<double>(calls) / whole}};
  }
  std::filesystem::remove_all(folder);
  return result;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  CLI::App app{"What log() costs"};
  int64_t calls = 50'000;
  std::string json_file;
  app.add_option("--calls", calls, "calls of each kind")->capture_default_str();
  app.add_option("--json", json_file, "write the results to this file");
  CLI11_PARSE(app, argc, argv);
  nlohmann::json results;
  for (const char* tracker : {"tensorboard", "csv", "jsonl", "mlflow", "wandb"}) {
    results["three numbers"][tracker] =
        bench::cost_of_log(tracker, calls, [](accelerate::Accelerator& accelerator, int64_t step) {
          accelerator.log({{"train/loss", 0.5}, {"train/lr", 1e-3}, {"epoch", 1}}, step);
        });
  }
  const auto host = torch::tensor(0.5);
  results["a tensor of the host"] =
      bench::cost_of_log("jsonl", calls, [&](accelerate::Accelerator& accelerator, int64_t step) {
        accelerator.log({{"train/loss", host}}, step);
      });
  const accelerate::Accelerator accelerator;
  if (!accelerator.device().is_cpu()) {
    const auto loss = torch::tensor(0.5, accelerator.device());
    results["a tensor of the device"] =
        bench::cost_of_log("jsonl", calls / 10, [&](accelerate::Accelerator& own, int64_t step) {
          own.log({{"train/loss", loss}}, step);
        });
  }
  bench::publish(results, argc, argv, json_file);
}

// What calls of an accelerator cost on one process, where there is nothing to do, and what windows
// of gradient accumulation send on several.
#include <accelerate/accelerate.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "mlp.h"
#include "report.h"
#include "turns.h"

namespace bench {
namespace {

// Nanoseconds of one call: the best of several runs of `calls`.
double cost_of(const std::function<void()>& call, int64_t calls) {
  double best = 0;
  for (int run = 0; run < 7; ++run) {
    const Stopwatch watch;
    for (int64_t i = 0; i < calls; ++i) call();
    const double each = watch.seconds() / static_cast<double>(calls);
    if (run == 0 || each < best) best = each;
  }
  return best * 1e9;
}

nlohmann::json costs_of_calls(int64_t calls) {
  accelerate::Accelerator accelerator(
      {.cpu = true, .mixed_precision = accelerate::MixedPrecision::kNo});
  auto net = std::make_shared<torch::nn::LinearImpl>(4, 4);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  const at::Tensor tensor = torch::ones({4});
  std::vector<at::Tensor> several(4, tensor);
  const auto report = accelerator.on_last_process([](int64_t) {});
  int64_t seen = 0;
  nlohmann::json costs;
  const auto measure = [&](const char* name, const std::function<void()>& call) {
    costs[name] = cost_of(call, calls);
  };
  measure("nothing (the measuring itself)", [&] { ++seen; });
  measure("accumulate", [&] { const auto window = accelerator.accumulate(model); });
  measure("sync_gradients", [&] { seen += accelerator.sync_gradients() ? 1 : 0; });
  measure("no_sync", [&] { const auto quiet = accelerator.no_sync(model); });
  measure("autocast", [&] { const auto precision = accelerator.autocast(); });
  measure("unscale_gradients", [&] { accelerator.unscale_gradients(); });
  measure("optimizer_step_was_skipped",
          [&] { seen += accelerator.optimizer_step_was_skipped() ? 1 : 0; });
  measure("gather", [&] { seen += accelerator.gather(tensor).numel(); });
  measure("gather of four tensors",
          [&] { seen += static_cast<int64_t>(accelerator.gather(several).size()); });
  measure("gather_for_metrics", [&] { seen += accelerator.gather_for_metrics(tensor).numel(); });
  measure("reduce", [&] { seen += accelerator.reduce(tensor).numel(); });
  measure("broadcast", [&] { seen += accelerator.broadcast(tensor).numel(); });
  measure("pad_across_processes",
          [&] { seen += accelerator.pad_across_processes(tensor).numel(); });
  measure("wait_for_everyone", [&] { accelerator.wait_for_everyone(); });
  measure("main_process_first", [&] { const auto turn = accelerator.main_process_first(); });
  measure("on_last_process", [&] { report(seen); });
  measure("check_trigger", [&] { seen += accelerator.check_trigger() ? 1 : 0; });
  if (seen == 0) throw std::runtime_error("the calls did nothing at all");
  return costs;
}

// Bytes that this process has given to sockets, pipes and files.
int64_t bytes_written() {
  std::ifstream file("/proc/self/io");
  std::string key;
  int64_t value = 0;
  while (file >> key >> value) {
    if (key == "wchar:") return value;
  }
  throw std::runtime_error("/proc/self/io does not say what was written");
}

// Bytes a micro-batch that this rank sends in windows of `steps`.
double sent_with(int64_t steps, int64_t micro_batches) {
  accelerate::AcceleratorOptions options;
  options.cpu = true;
  options.gradient_accumulation.steps = steps;
  accelerate::Accelerator accelerator(options);
  torch::manual_seed(1);
  const Mlp net(512);
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  const at::Tensor input = torch::randn({8, 784});
  int64_t before = 0;
  for (int64_t i = 0; i < 2 * micro_batches; ++i) {
    if (i == micro_batches) before = bytes_written();  // the first windows arrange the buckets
    const auto window = accelerator.accumulate(model);
    accelerator.backward(model(input).square().mean());
    optimizer.step();
    optimizer.zero_grad();
  }
  return static_cast<double>(bytes_written() - before) / static_cast<double>(micro_batches);
}

nlohmann::json bytes_of_windows(int64_t micro_batches) {
  const double each = sent_with(1, micro_batches);
  const double windows = sent_with(8, micro_batches);
  return {{"bytes_each_micro_batch", each},
          {"bytes_in_windows_of_8", windows},
          {"share", windows / each}};
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  CLI::App app{"What calls of an accelerator cost"};
  int64_t calls = 100'000;
  int64_t micro_batches = 64;
  bool windows = false;
  std::string json_file;
  app.add_option("--calls", calls, "calls of each kind in one run")->check(CLI::PositiveNumber);
  app.add_flag("--windows", windows, "count bytes of windows instead; for several ranks");
  app.add_option("--micro-batches", micro_batches, "that are counted; a multiple of 8");
  app.add_option("--json", json_file, "also write the results to this file");
  CLI11_PARSE(app, argc, argv);
  nlohmann::json results;
  if (windows) {
    results["windows"] = bench::bytes_of_windows(micro_batches);
  } else {
    results["nanoseconds"] = bench::costs_of_calls(calls);
  }
  if (!accelerate::ProcessState::from_environment({.cpu = true}).is_main_process()) return 0;
  bench::publish(results, argc, argv, json_file);
}

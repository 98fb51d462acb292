// Tokens a second and memory of GPT-2 on the ranks that this is launched on, strategy by strategy:
// see docs/benchmarks.md.
#include <accelerate/accelerate.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "../examples/gpt2/plain_gpt2.h"

namespace {

using accelerate::Accelerator;
using accelerate::AcceleratorOptions;
using accelerate::ZeroOptions;
using accelerate::ZeroUnits;
using nlohmann::json;

struct Work {
  std::string model = "124M";
  int64_t batch = 8;
  int warmup = 3;
  int blocks = 3;
  int steps = 3;  // of each block
};

c10::CachingDeviceAllocator::DeviceStats memory_of(const c10::Device& device) {
  return c10::getDeviceAllocator(c10::kCUDA)->getDeviceStats(device.index());
}

double gibibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

// The largest of all ranks.
double most(Accelerator& accelerator, double own) {
  const at::Tensor all = accelerator.gather(torch::full({1}, own, accelerator.device()));
  return all.max().item<double>();
}

// Everybody trains from the same seed, so losses tell whether all did the same work.
template <class Module>
json train(const std::string& name, const AcceleratorOptions& options, const Work& work) {
  Accelerator accelerator(options);
  const c10::Device device = accelerator.device();
  torch::manual_seed(1);
  gpt2::Gpt2 fused(gpt2::config_named(work.model));
  auto net = [&] {
    if constexpr (std::is_same_v<Module, gpt2::Gpt2>) {
      return fused;
    } else {
      return Module(fused);
    }
  }();
  net->to(device);
  auto adamw = gpt2::adamw_for(*net, 3e-4, 0.1);
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  const int64_t positions = fused->config.positions;
  auto generator = at::detail::createCPUGenerator(100 + accelerator.process_index());
  const auto tokens = [&] {
    return torch::randint(50257, {work.batch, positions}, generator, at::kLong).to(device);
  };
  const at::Tensor inputs = tokens();
  const at::Tensor targets = tokens();

  at::Tensor loss;
  const auto step = [&, &model = model, &optimizer = optimizer] {
    const at::Tensor now = model(inputs, targets);
    accelerator.backward(now);
    optimizer.step();
    optimizer.zero_grad();
    loss = now.detach();
  };
  for (int i = 0; i < work.warmup; ++i) step();
  const double loss_after_warmup = accelerator.gather(loss.reshape({1})).mean().item<double>();
  std::vector<double> seconds;
  for (int block = 0; block < work.blocks; ++block) {
    accelerator.wait_for_everyone();
    torch::cuda::synchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < work.steps; ++i) step();
    torch::cuda::synchronize();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    seconds.push_back(taken.count() / work.steps);
  }
  std::ranges::sort(seconds);
  const double median = seconds[seconds.size() / 2];

  c10::getDeviceAllocator(c10::kCUDA)->resetPeakStats(device.index());
  step();
  torch::cuda::synchronize();
  const auto stats = memory_of(device);
  const double total = static_cast<double>(work.batch * positions * accelerator.num_processes());
  return {{"part", "sharding"},
          {"strategy", name},
          {"ranks", accelerator.num_processes()},
          {"batch", work.batch},
          {"ms_per_step", median * 1e3},
          {"slowest_ms_per_step", seconds.back() * 1e3},
          {"tokens_per_second", total / median},
          {"peak_gib", most(accelerator, gibibytes(stats.allocated_bytes[0].peak))},
          {"after_step_gib", most(accelerator, gibibytes(stats.allocated_bytes[0].current))},
          {"loss", loss_after_warmup}};
}

AcceleratorOptions autocast(const accelerate::StrategyOptions& strategy) {
  AcceleratorOptions options;
  options.mixed_precision = accelerate::MixedPrecision::kBf16;
  options.strategy = strategy;
  return options;
}

// Everything is computed in the type of the units, as FSDP2 does: nothing needs autocast.
AcceleratorOptions in_type_of_units(const ZeroOptions& zero) {
  AcceleratorOptions options;
  options.strategy = zero;
  return options;
}

// Layers of this model are no list of modules: they are named.
ZeroUnits layers(std::optional<at::ScalarType> dtype = std::nullopt) {
  return {.modules = {"Block"}, .param_dtype = dtype};
}

json figures_of(const std::string& name, const Work& work) {
  if (name == "plain") {
    return train<gpt2::PlainGpt2>(name, autocast(accelerate::AutoStrategy{}), work);
  }
  if (name == "flat") {
    AcceleratorOptions options;
    options.flat = accelerate::FlatOptions{};
    return train<gpt2::Gpt2>(name, options, work);
  }
  if (name == "zero1" || name == "zero2") {
    const ZeroOptions zero{.stage = name.back() - '0'};
    return train<gpt2::PlainGpt2>(name, autocast(zero), work);
  }
  if (name == "plain halved") {  // gradients are sent in bfloat16 from here on, where it says so
    accelerate::DdpOptions ddp;
    ddp.comm_hook.hook = accelerate::CommHook::kBf16;
    return train<gpt2::PlainGpt2>(name, autocast(ddp), work);
  }
  if (name == "zero1 halved") {
    ZeroOptions zero{.stage = 1};
    zero.ddp.comm_hook.hook = accelerate::CommHook::kBf16;
    return train<gpt2::PlainGpt2>(name, autocast(zero), work);
  }
  if (name == "zero2 halved") {
    const ZeroOptions zero{.stage = 2, .reduce_dtype = at::kBFloat16};
    return train<gpt2::PlainGpt2>(name, autocast(zero), work);
  }
  if (name == "zero3 halved" || name == "zero3 halved kept") {
    ZeroUnits units = layers(at::kBFloat16);
    units.reshard_after_forward = name == "zero3 halved";
    const ZeroOptions zero{.stage = 3, .reduce_dtype = at::kBFloat16, .units = units};
    return train<gpt2::PlainGpt2>(name, in_type_of_units(zero), work);
  }
  if (name == "zero3") {
    const ZeroOptions zero{.stage = 3, .units = layers()};
    return train<gpt2::PlainGpt2>(name, autocast(zero), work);
  }
  if (name == "zero3 bf16") {
    const ZeroOptions zero{.stage = 3, .units = layers(at::kBFloat16)};
    return train<gpt2::PlainGpt2>(name, in_type_of_units(zero), work);
  }
  if (name == "zero3 bf16 fused") {
    const ZeroOptions zero{.stage = 3, .units = layers(at::kBFloat16)};
    return train<gpt2::Gpt2>(name, in_type_of_units(zero), work);
  }
  if (name == "zero3 bf16 kept") {  // whole from the forward to the backward pass
    ZeroUnits units = layers(at::kBFloat16);
    units.reshard_after_forward = false;
    const ZeroOptions zero{.stage = 3, .units = units};
    return train<gpt2::PlainGpt2>(name, in_type_of_units(zero), work);
  }
  throw std::invalid_argument("no strategy is called '" + name + "'");
}

int run(const std::vector<std::string>& strategies, const Work& work) {
  const bool is_first = accelerate::ProcessState::from_environment().rank() == 0;
  bool is_well = true;
  for (const std::string& name : strategies) {
    json row;
    try {
      row = figures_of(name, work);
    } catch (const std::exception& error) {
      row = {{"part", "sharding"}, {"strategy", name}, {"error", error.what()}};
      is_well = false;
    }
    accelerate::clear_device_cache();
    if (is_first) std::cout << row.dump() << std::endl;
  }
  return is_well ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("GPT-2 by each strategy, on the ranks that this is launched on");
  std::vector<std::string> strategies{"plain", "flat", "zero1", "zero2", "zero3", "zero3 bf16"};
  Work work;
  app.add_option(
      "--strategies", strategies,
      "plain (DDP), flat, zero1, zero2, zero3, zero3 bf16, zero3 bf16 fused, zero3 bf16 "
      "kept; gradients sent in bfloat16: plain, zero1, zero2, zero3 halved, zero3 halved "
      "kept");
  app.add_option("--model", work.model, "124M, 350M, 774M or 1558M");
  app.add_option("--batch", work.batch, "Of each rank");
  app.add_option("--warmup", work.warmup, "Steps before the first block");
  app.add_option("--blocks", work.blocks, "Their median counts");
  app.add_option("--steps", work.steps, "Of a block");
  CLI11_PARSE(app, argc, argv);
  return accelerate::run([&] { return run(strategies, work); });
}

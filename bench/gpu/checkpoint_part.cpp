#include <accelerate/accelerate.h>
#include <stdlib.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>

#include "../examples/gpt2/gpt2.h"
#include "gpu/parts.h"
#include "gpu/timing.h"

namespace bench {
namespace {

using accelerate::Accelerator;

// A folder that is gone afterwards.
struct Scratch {
  Scratch() {
    std::string pattern = (std::filesystem::temp_directory_path() / "bench-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a folder");
    path = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::filesystem::path path;
};

template <class Action>
double seconds_of(Action action) {
  const auto began = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

double median_of_three(const std::function<double()>& once) {
  std::array<double, 3> found{once(), once(), once()};
  std::ranges::sort(found);
  return found[1];
}

}  // namespace

nlohmann::json checkpoint_speed() {
  const Scratch scratch;
  Accelerator accelerator;
  gpt2::Gpt2 net{gpt2::Config{}};
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-3));
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  int64_t bytes = 0;
  for (at::Tensor parameter : net->parameters()) {
    parameter.mutable_grad() = torch::randn_like(parameter) * 1e-3;
    bytes += 3 * static_cast<int64_t>(parameter.nbytes());  // with the two averages of AdamW
  }
  optimizer.step();
  accelerate::device::cuda_plugin()->synchronize();
  const auto folder = scratch.path / "state";
  const double save =
      median_of_three([&] { return seconds_of([&] { accelerator.save_state(folder); }); });
  const double blocked = median_of_three([&] {
    std::optional<accelerate::SaveTicket> ticket;
    const double found =
        seconds_of([&] { ticket = accelerator.save_state(folder, {.async = true}); });
    ticket->wait();
    return found;
  });
  const double load = median_of_three([&] {
    return seconds_of([&] {
      accelerator.load_state(folder);
      accelerate::device::cuda_plugin()->synchronize();
    });
  });
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  return {{"part", "checkpoint of GPT-2 124M and AdamW on the GPU"},
          {"gigabytes", gigabytes},
          {"save_seconds", save},
          {"save_gb_per_second", gigabytes / save},
          {"async_save_blocks_seconds", blocked},
          {"load_seconds", load},
          {"load_gb_per_second", gigabytes / load}};
}

}  // namespace bench

// A step on XLA's CPU device against the same step of libtorch on the CPU: the loop of the library
// on one, written by hand on the other, in turns.
//
//   PJRT_DEVICE=CPU bench_xla [rounds [width [batch]]]
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "accelerate/accelerate.h"
#include "compat/xla/client.h"

namespace {

using accelerate::Accelerator;
using Clock = std::chrono::steady_clock;

constexpr int kStepsOfTurn = 10;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

struct MlpImpl : torch::nn::Module {
  torch::nn::Linear in, hidden, out;
  explicit MlpImpl(int64_t width) : in(width, width), hidden(width, width), out(width, 10) {
    register_module("in", in), register_module("hidden", hidden), register_module("out", out);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return out(torch::relu(hidden(torch::relu(in(x)))));
  }
};
TORCH_MODULE(Mlp);

double percentile(std::vector<double> values, double part) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
}

void print_times(const char* name, const std::vector<double>& times) {
  std::printf("%-20s p50 %8.3f ms, p99 %8.3f ms a step\n", name, percentile(times, 0.5),
              percentile(times, 0.99));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 10;
  const int64_t width = argc > 2 ? std::atoi(argv[2]) : 1024;
  const int64_t batch = argc > 3 ? std::atoi(argv[3]) : 32;
  namespace F = torch::nn::functional;

  const auto begin = Clock::now();
  Accelerator accelerator({.device = "xla"});
  const double opened = milliseconds_since(begin);
  torch::manual_seed(0);
  const auto x = torch::randn({batch, width});
  const auto y = torch::randint(10, {batch});
  torch::manual_seed(1);
  Mlp of_cpu(width);
  torch::manual_seed(1);
  Mlp net(width);
  torch::optim::AdamW cpu_adamw(of_cpu->parameters(), 1e-3);
  torch::optim::AdamW adamw(net->parameters(), 1e-3);
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  const auto device = accelerator.device();

  const auto step_of_cpu = [&] {
    cpu_adamw.zero_grad();
    auto loss = F::cross_entropy(of_cpu(x), y);
    loss.backward();
    cpu_adamw.step();
    return loss.item<double>();
  };
  const auto step_of_xla = [&, &model = model, &optimizer = optimizer] {
    optimizer.zero_grad();
    auto loss = F::cross_entropy(model(x.to(device)), y.to(device));
    accelerator.backward(loss);
    optimizer.step();
    return loss.item<double>();
  };

  const auto first = Clock::now();
  double worst = std::abs(step_of_cpu() - step_of_xla());
  const double first_step = milliseconds_since(first);
  for (int i = 0; i < 5; ++i) worst = std::max(worst, std::abs(step_of_cpu() - step_of_xla()));
  if (worst > 1e-3) {
    std::fprintf(stderr, "the losses differ by %g\n", worst);
    return 1;
  }
  std::vector<double> cpu_times;
  std::vector<double> xla_times;
  for (int round = 0; round < rounds; ++round) {
    auto turn = Clock::now();
    for (int i = 0; i < kStepsOfTurn; ++i) (void)step_of_cpu();
    cpu_times.push_back(milliseconds_since(turn) / kStepsOfTurn);
    turn = Clock::now();
    for (int i = 0; i < kStepsOfTurn; ++i) (void)step_of_xla();
    xla_times.push_back(milliseconds_since(turn) / kStepsOfTurn);
  }
  std::printf(
      "MLP of width %lld, batch %lld, %d turns of %d steps; losses differ by %.1e at most\n",
      static_cast<long long>(width), static_cast<long long>(batch), rounds, kStepsOfTurn, worst);
  print_times("libtorch, CPU", cpu_times);
  print_times("accelerate, XLA", xla_times);
  const auto counts = accelerate::compat::xla_counts();
  std::string left;
  for (const auto& [name, count] : counts.on_the_host) left += " " + name;
  std::printf(
      "opening torch_xla %.0f ms, first step %.0f ms, %lld programs compiled, left to the "
      "CPU:%s\n",
      opened, first_step, static_cast<long long>(counts.compilations),
      left.empty() ? " nothing" : left.c_str());
}

// A small training loop to profile, and the spans of a trace.
#pragma once

#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "multiproc/state_folder.h"
#include "multiproc/training.h"

namespace accelerate::test {

struct Profiles : Ranks {
  StateFolder folder;

  nlohmann::json trace_at(const std::string& name) const {
    std::ifstream file(folder / name);
    return nlohmann::json::parse(file);
  }
};

struct SpanTimes {
  std::string name;
  int64_t thread = 0;
  double begin = 0;
  double end = 0;

  bool holds(const SpanTimes& other) const {
    constexpr double kClockError = 20;  // microseconds, between two clocks of one machine
    return begin <= other.begin + kClockError && other.end <= end + kClockError;
  }
};

inline std::vector<SpanTimes> spans_in(const nlohmann::json& trace, const std::string& category) {
  std::vector<SpanTimes> spans;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event.value("cat", "") != category || event["ph"] != "X") continue;
    const double begin = event["ts"];
    spans.push_back({event["name"], event["tid"], begin, begin + event["dur"].get<double>()});
  }
  return spans;
}

inline std::vector<SpanTimes> named(const std::vector<SpanTimes>& spans, const std::string& name) {
  std::vector<SpanTimes> found;
  std::copy_if(spans.begin(), spans.end(), std::back_inserter(found),
               [&](const SpanTimes& span) { return span.name == name; });
  return found;
}

struct Line : torch::nn::Module {
  Line()
      : first(register_module("first", torch::nn::Linear(4, 8))),
        second(register_module("second",
                               torch::nn::Linear(torch::nn::LinearOptions(8, 2).bias(false)))) {}
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::relu(first(x))); }
  torch::nn::Linear first, second;
};

// On the CPU whatever device other tests have: numbers of bytes and operators are those of it.
inline AcceleratorOptions on_processor() {
  AcceleratorOptions options = on_cpu();
  options.cpu = true;
  return options;
}

// A loop whose batches are ready, with all that a profile may see of it.
struct Loop {
  explicit Loop(const AcceleratorOptions& options = on_processor()) : accelerator(options) {}

  void train(Profile& profile, int steps) {
    for (int i = 0; i < steps; ++i) {
      accelerator.backward(model(torch::ones({16, 4})).square().mean());
      optimizer.step();
      optimizer.zero_grad();
      profile.step();
    }
  }

  Accelerator accelerator;
  std::shared_ptr<Line> net = [] {
    torch::manual_seed(3);
    return std::make_shared<Line>();
  }();
  torch::optim::SGD sgd{net->parameters(), 0.01};
  PreparedModel<Line> model = accelerator.prepare(net);
  PreparedOptimizer optimizer = accelerator.prepare(sgd);
};

}  // namespace accelerate::test

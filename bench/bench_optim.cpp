// Updates and clipping of a model of many tensors: prepared against torch's own C++.
#include <accelerate/clip.h>

#include <CLI/CLI.hpp>

#include "main.h"
#include "paired_times.h"
#include "report.h"

namespace bench {
namespace {

struct ManyTensors {
  int64_t layers = 50;  // a matrix and a vector each
  int64_t width = 128;
};

// The same parameters and gradients for equal settings.
std::vector<at::Tensor> make_parameters(const ManyTensors& model) {
  torch::manual_seed(1);
  std::vector<at::Tensor> parameters;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    parameters.push_back(torch::randn({model.width, model.width}));
    parameters.push_back(torch::randn({model.width}));
  }
  for (at::Tensor& parameter : parameters) {
    parameter.mutable_grad() = torch::randn_like(parameter);
    parameter.requires_grad_();
  }
  return parameters;
}

// One update, with the same gradients each time.
class UpdateLoop final : public TrainingLoop {
 public:
  UpdateLoop(const ManyTensors& model, bool prepared)
      : parameters_(make_parameters(model)),
        optimizer_(std::make_shared<torch::optim::AdamW>(parameters_, 1e-3)),
        prepared_(prepared ? std::make_optional<accelerate::PreparedOptimizer>(optimizer_)
                           : std::nullopt) {}

  void step() override { prepared_ ? prepared_->step() : optimizer_->step(); }
  std::vector<at::Tensor> parameters() const override { return parameters_; }

 private:
  std::vector<at::Tensor> parameters_;
  std::shared_ptr<torch::optim::AdamW> optimizer_;
  std::optional<accelerate::PreparedOptimizer> prepared_;
};

// Looks at the norm of the gradients and, where the bound falls below it with each step, scales
// them.
template <bool kScales>
class ClipLoop final : public TrainingLoop {
 public:
  ClipLoop(const ManyTensors& model, bool own) : parameters_(make_parameters(model)), own_(own) {}

  void step() override {
    if (kScales) bound_ *= 0.999;
    if (own_) {
      loss_ = accelerate::clip_grad_norm_(parameters_, bound_);
    } else {
      loss_ = torch::tensor(torch::nn::utils::clip_grad_norm_(parameters_, bound_));
    }
  }
  std::vector<at::Tensor> parameters() const override {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : parameters_) gradients.push_back(parameter.grad());
    return gradients;
  }

 private:
  std::vector<at::Tensor> parameters_;
  bool own_;
  double bound_ = kScales ? 10.0 : 1e9;
};

template <class Loop>
nlohmann::json compare(const ManyTensors& model, int rounds, int pairs) {
  PairedTimes times;
  for (int round = 0; round < rounds; ++round) {
    std::optional<Loop> own;
    std::optional<Loop> torchs;
    make_in_changing_order(
        {[&] { own.emplace(model, true); }, [&] { torchs.emplace(model, false); }}, round);
    warm_up(*own);
    warm_up(*torchs);
    require_equal_parameters(*own, *torchs);
    times.measure(*own, *torchs, pairs, [] {});
  }
  return times.report();
}

int main(int argc, char** argv) {
  ManyTensors model;
  int threads = 1;
  int rounds = 6;
  int pairs = 20;
  std::string json_file;
  CLI::App app("Times updates and clipping of many tensors against torch's own C++, in turns");
  app.add_option("--layers", model.layers, "Layers, of two tensors each");
  app.add_option("--width", model.width, "Rows and columns of a layer");
  app.add_option("--threads", threads, "Threads of torch");
  app.add_option("--rounds", rounds, "How often parameters and optimizers are created again");
  app.add_option("--pairs", pairs, "Comparisons in a round");
  app.add_option("--json", json_file, "File for the results");
  CLI11_PARSE(app, argc, argv);

  torch::set_num_threads(threads);
  publish({{"name", "updates and clipping of many tensors"},
           {"tensors", 2 * model.layers},
           {"width", model.width},
           {"adamw", compare<UpdateLoop>(model, rounds, pairs)},
           {"clip_that_scales", compare<ClipLoop<true>>(model, rounds, pairs)},
           {"clip_within_bounds", compare<ClipLoop<false>>(model, rounds, pairs)}},
          argc, argv, json_file);
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run_main("bench_optim", bench::main, argc, argv); }

#include <accelerate/accelerate.h>
#include <accelerate/flat_parameters.h>
#include <accelerate/step_capture.h>
#include <accelerate/transformers/auto_model.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/torch.h>

#include <memory>
#include <set>

#include "../examples/gpt2/plain_gpt2.h"
#include "gpu/parts.h"
#include "gpu/timing.h"

namespace bench {
namespace {

using accelerate::Accelerator;
using accelerate::FlatAdamW;
using accelerate::FlatAdamWOptions;
using accelerate::FlatParameters;
using Tensors = std::vector<at::Tensor>;

constexpr int64_t kPositions = 1024;

Tensors random_batch(int64_t batch, const c10::Device& device) {
  const auto options = at::TensorOptions(at::kLong).device(device);
  return {torch::randint(50257, {batch, kPositions}, options),
          torch::randint(50257, {batch, kPositions}, options)};
}

// One training step of the fused model.
struct FusedTraining {
  FusedTraining(const gpt2::Config& config, const c10::Device& device, double lr = 3e-4)
      : model(config) {
    model->to(device);
    flat = std::make_shared<FlatParameters>(*model);
    optimizer = std::make_unique<FlatAdamW>(
        flat, FlatAdamWOptions{.lr = lr, .beta2 = 0.95, .weight_decay = 0.1, .max_norm = 1.0});
  }

  Tensors step(const Tensors& batch) {
    flat->zero_grad();
    const at::Tensor loss = model(batch[0], batch[1]);
    loss.backward();
    optimizer->step();
    return {loss.detach()};
  }

  gpt2::Gpt2 model;
  std::shared_ptr<FlatParameters> flat;
  std::unique_ptr<FlatAdamW> optimizer;
};

// The same network as a model of Accelerate::transformers.
struct LibraryTraining {
  LibraryTraining(const gpt2::Config& config, const c10::Device& device) {
    const nlohmann::json settings{{"model_type", "gpt2"},
                                  {"vocab_size", config.vocabulary},
                                  {"n_positions", config.positions},
                                  {"n_layer", config.layers},
                                  {"n_head", config.heads},
                                  {"n_embd", config.width},
                                  {"embd_pdrop", 0.0},
                                  {"attn_pdrop", 0.0},
                                  {"resid_pdrop", 0.0}};
    model = accelerate::transformers::AutoModelForCausalLM::from_config(
        accelerate::transformers::ModelConfig::from_json(settings.dump()));
    model->to(device);
    flat = std::make_shared<FlatParameters>(*model);
    optimizer = std::make_unique<FlatAdamW>(
        flat, FlatAdamWOptions{.lr = 3e-4, .beta2 = 0.95, .weight_decay = 0.1, .max_norm = 1.0});
  }

  Tensors step(const Tensors& batch) {
    flat->zero_grad();
    const at::Tensor loss =
        model->forward({.input_ids = batch[0], .labels = batch[1]}, {.loss_only = true}).loss;
    loss.backward();
    optimizer->step();
    return {loss.detach()};
  }

  std::shared_ptr<accelerate::transformers::PretrainedModel> model;
  std::shared_ptr<FlatParameters> flat;
  std::unique_ptr<FlatAdamW> optimizer;
};

nlohmann::json row(const std::string& model, int64_t batch, const std::string& mode, double seconds,
                   int64_t bytes) {
  return {{"part", "gpt2"},
          {"model", model},
          {"batch", batch},
          {"mode", mode},
          {"ms_per_step", seconds * 1e3},
          {"tokens_per_second", static_cast<double>(batch * kPositions) / seconds},
          {"peak_gib", static_cast<double>(bytes) / (1 << 30)}};
}

nlohmann::json captured_row(const std::string& model, int64_t batch, const std::string& mode,
                            accelerate::StepCapture& step, const Tensors& data, int calls) {
  const double seconds = median_seconds([&] { step(data); }, 8, 5, calls);
  // The memory inside of graphs is not counted by tensors.
  auto result = row(model, batch, mode, seconds, 0);
  result.erase("peak_gib");
  result["graphs"] = step.graphs();
  result["fallback"] = step.fallback_reason();
  return result;
}

}  // namespace

nlohmann::json gpt2_speed(const std::string& name, int64_t batch, const std::string& mode) {
  torch::manual_seed(1);
  const gpt2::Config config = gpt2::config_named(name);
  const int calls = batch >= 32 ? 5 : 10;
  if (mode == "plain" || mode == "plain captured") {
    Accelerator accelerator({.mixed_precision = accelerate::MixedPrecision::kBf16});
    gpt2::PlainGpt2 net{gpt2::Gpt2(config)};
    net->to(accelerator.device());
    torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(3e-4));
    auto [model, optimizer] = accelerator.prepare(net, adamw);
    const Tensors data = random_batch(batch, accelerator.device());
    const auto train = [&, &model = model, &optimizer = optimizer](const Tensors& in) -> Tensors {
      optimizer.zero_grad();
      const at::Tensor loss = model(in[0], in[1]);
      accelerator.backward(loss);
      accelerator.clip_grad_norm_(model->parameters(), 1.0);
      optimizer.step();
      return {loss.detach()};
    };
    if (mode == "plain captured") {
      auto captured = accelerator.capture(train);
      return captured_row(name, batch, mode, captured, data, calls);
    }
    const auto step = [&] { train(data); };
    const double seconds = median_seconds(step, 5, 5, calls);
    return row(name, batch, mode, seconds, peak_bytes(step));
  }
  Accelerator accelerator;
  const Tensors data = random_batch(batch, accelerator.device());
  const auto measure = [&](auto& training, bool captured) {
    if (captured) {
      auto step = accelerator.capture([&](const Tensors& inputs) { return training.step(inputs); });
      return captured_row(name, batch, mode, step, data, calls);
    }
    const auto work = [&] { training.step(data); };
    const double seconds = median_seconds(work, 5, 5, calls);
    return row(name, batch, mode, seconds, peak_bytes(work));
  };
  if (mode.starts_with("library")) {
    LibraryTraining training(config, accelerator.device());
    return measure(training, mode == "library captured");
  }
  FusedTraining training(config, accelerator.device());
  return measure(training, mode == "captured");
}

void gpt2_profile(int64_t batch, const std::string& trace_file) {
  namespace profiler = torch::autograd::profiler;
  namespace impl = torch::profiler::impl;
  Accelerator accelerator;
  FusedTraining training(gpt2::Config{}, accelerator.device());
  const Tensors data = random_batch(batch, accelerator.device());
  for (int i = 0; i < 5; ++i) training.step(data);
  accelerate::device::cuda_plugin()->synchronize();
  const impl::ProfilerConfig config(impl::ProfilerState::KINETO);
  const std::set<impl::ActivityType> activities{impl::ActivityType::CUDA};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  for (int i = 0; i < 3; ++i) training.step(data);
  accelerate::device::cuda_plugin()->synchronize();
  profiler::disableProfiler()->save(trace_file);
}

nlohmann::json gpt2_loss_agreement(int steps) {
  const gpt2::Config config{.vocabulary = 1024, .layers = 6, .heads = 12, .width = 768};
  Accelerator accelerator;
  torch::manual_seed(2);
  FusedTraining fused(config, accelerator.device(), 1e-3);
  torch::manual_seed(2);
  gpt2::PlainGpt2 plain{gpt2::Gpt2(config)};
  plain->to(accelerator.device());
  FlatAdamW adamw(
      std::make_shared<FlatParameters>(*plain,
                                       accelerate::FlatParametersOptions{.dtype = at::kFloat}),
      FlatAdamWOptions{.lr = 1e-3, .beta2 = 0.95, .weight_decay = 0.1, .max_norm = 1.0});
  const auto options = at::TensorOptions(at::kLong).device(accelerator.device());
  Tensors fused_losses;
  Tensors plain_losses;
  for (int step = 0; step < steps; ++step) {
    // A walk with few choices at each token: there is something to learn.
    const at::Tensor moves = torch::randint(4, {4, kPositions + 1}, options) * 37 + 1;
    const at::Tensor walk = moves.cumsum(1).remainder(config.vocabulary);
    const Tensors batch{walk.narrow(1, 0, kPositions).contiguous(),
                        walk.narrow(1, 1, kPositions).contiguous()};
    fused_losses.push_back(fused.step(batch)[0]);
    adamw.zero_grad();
    const at::Tensor loss = plain(batch[0], batch[1]);
    loss.backward();
    adamw.step();
    plain_losses.push_back(loss.detach());
  }
  const at::Tensor left = torch::stack(fused_losses).to(at::kDouble).cpu();
  const at::Tensor right = torch::stack(plain_losses).to(at::kDouble).cpu();
  const auto last = [&](const at::Tensor& losses) {
    return losses.narrow(0, steps - 20, 20).mean().item<double>();
  };
  return {{"part", "loss agreement"},
          {"steps", steps},
          {"fused_bf16", last(left)},
          {"plain_fp32", last(right)},
          {"first_loss", right[0].item<double>()},
          {"largest_relative_difference", ((left - right).abs() / right).max().item<double>()},
          {"relative_difference_of_last_20", std::abs(last(left) / last(right) - 1)}};
}

}  // namespace bench

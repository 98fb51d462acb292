#include <accelerate/accelerate.h>
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
using accelerate::AcceleratorOptions;
using Tensors = std::vector<at::Tensor>;

constexpr int64_t kPositions = 1024;

Tensors random_batch(int64_t batch, const c10::Device& device) {
  const auto options = at::TensorOptions(at::kLong).device(device);
  return {torch::randint(50257, {batch, kPositions}, options),
          torch::randint(50257, {batch, kPositions}, options)};
}

constexpr double kDecay = 0.1;

AcceleratorOptions with_flat(at::ScalarType dtype = at::kBFloat16) {
  return {.flat = accelerate::FlatOptions{.dtype = dtype}};
}

// A model that is trained as in README.md, with flat parameters.
template <class Module>
struct Training {
  Training(Accelerator& accelerator, Module net, double lr = 3e-4)
      : accelerator(accelerator),
        adamw(gpt2::adamw_for(*net, lr, kDecay)),
        model(accelerator.prepare(net)),
        optimizer(accelerator.prepare(adamw)) {}

  template <class Forward>
  Tensors step(Forward forward) {
    optimizer.zero_grad();
    const at::Tensor loss = forward(model);
    accelerator.backward(loss);
    accelerator.clip_grad_norm_(model->parameters(), 1.0);
    optimizer.step();
    return {loss.detach()};
  }

  Accelerator& accelerator;
  torch::optim::AdamW adamw;
  decltype(std::declval<Accelerator&>().prepare(std::declval<Module&>())) model;
  accelerate::PreparedOptimizer optimizer;
};

// The network of the example, or the same on operators of libtorch.
template <class Module>
struct Gpt2Training : Training<Module> {
  using Training<Module>::Training;
  Tensors step(const Tensors& batch) {
    return Training<Module>::step([&](auto& model) { return model(batch[0], batch[1]); });
  }
};
using FusedTraining = Gpt2Training<gpt2::Gpt2>;

// The same network as a model of Accelerate::transformers.
using LibraryModel = std::shared_ptr<accelerate::transformers::PretrainedModel>;

LibraryModel library_model(const gpt2::Config& config) {
  const nlohmann::json settings{{"model_type", "gpt2"},
                                {"vocab_size", config.vocabulary},
                                {"n_positions", config.positions},
                                {"n_layer", config.layers},
                                {"n_head", config.heads},
                                {"n_embd", config.width},
                                {"embd_pdrop", 0.0},
                                {"attn_pdrop", 0.0},
                                {"resid_pdrop", 0.0}};
  return accelerate::transformers::AutoModelForCausalLM::from_config(
      accelerate::transformers::ModelConfig::from_json(settings.dump()));
}

struct LibraryTraining : Training<LibraryModel> {
  using Training<LibraryModel>::Training;
  Tensors step(const Tensors& batch) {
    return Training<LibraryModel>::step([&](auto& model) {
      using Inputs = accelerate::transformers::ModelInputs;
      using Options = accelerate::transformers::ForwardOptions;
      return model(Inputs{.input_ids = batch[0], .labels = batch[1]}, Options{.loss_only = true})
          .loss;
    });
  }
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
  Accelerator accelerator(with_flat());
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
    LibraryTraining training(accelerator, library_model(config));
    return measure(training, mode == "library captured");
  }
  FusedTraining training(accelerator, gpt2::Gpt2(config));
  return measure(training, mode == "captured");
}

void gpt2_profile(int64_t batch, const std::string& trace_file) {
  namespace profiler = torch::autograd::profiler;
  namespace impl = torch::profiler::impl;
  Accelerator accelerator(with_flat());
  FusedTraining training(accelerator, gpt2::Gpt2(gpt2::Config{}));
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
  Accelerator accelerator(with_flat());
  Accelerator exact(with_flat(at::kFloat));
  torch::manual_seed(2);
  FusedTraining fused(accelerator, gpt2::Gpt2(config), 1e-3);
  torch::manual_seed(2);
  Gpt2Training<gpt2::PlainGpt2> plain(exact, gpt2::PlainGpt2(gpt2::Gpt2(config)), 1e-3);
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
    plain_losses.push_back(plain.step(batch)[0]);
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

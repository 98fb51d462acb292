#include <accelerate/accelerate.h>
#include <accelerate/ops.h>
#include <accelerate/step_capture.h>
#include <torch/torch.h>

#include <stdexcept>
#include <string>

#include "../examples/gpt2/gpt2.h"
#include "gpu/parts.h"
#include "gpu/timing.h"
#include "mlp.h"

namespace bench {
namespace {

using accelerate::Accelerator;
using Tensors = std::vector<at::Tensor>;
namespace ops = accelerate::ops;
namespace F = torch::nn::functional;

c10::Device gpu() { return Accelerator().device(); }

at::TensorOptions bf16() { return at::TensorOptions(at::kBFloat16).device(gpu()); }

// Seconds of `work`, which runs forwards and backwards from `leaves`.
double trained(const Tensors& leaves, const std::function<at::Tensor()>& work) {
  return median_seconds(
      [&] {
        for (at::Tensor leaf : leaves) leaf.mutable_grad().reset();
        work().backward();
      },
      5, 7, 10);
}

// The last layer of GPT-2 124M at batch 16.
struct Head {
  at::Tensor x = torch::randn({16 * 1024, 768}, bf16()).requires_grad_();
  at::Tensor table = (torch::randn({50304, 768}, bf16()) * 0.02).requires_grad_();
  at::Tensor target =
      torch::randint(50257, {16 * 1024}, at::TensorOptions(at::kLong).device(gpu()));
};

// How far the gradients of the first leaf by both ways are apart. What is not the same work is not
// timed.
double disagreement(const Tensors& leaves, const std::function<at::Tensor()>& fused,
                    const std::function<at::Tensor()>& eager) {
  const auto gradient = [&](const std::function<at::Tensor()>& work) {
    for (at::Tensor leaf : leaves) leaf.mutable_grad().reset();
    work().backward();
    return leaves[0].grad().to(at::kFloat);
  };
  const at::Tensor own = gradient(fused);
  const at::Tensor other = gradient(eager);
  const double apart = ((own - other).norm() / other.norm()).item<double>();
  if (!(apart < 0.05)) throw std::runtime_error("gradients differ by " + std::to_string(apart));
  return apart;
}

nlohmann::json compared(const std::string& name, const Tensors& leaves,
                        const std::function<at::Tensor()>& fused,
                        const std::function<at::Tensor()>& eager) {
  const double apart = disagreement(leaves, fused, eager);
  const auto once = [&](const std::function<at::Tensor()>& work) {
    return peak_bytes([&] {
      for (at::Tensor leaf : leaves) leaf.mutable_grad().reset();
      work().backward();
    });
  };
  const int64_t base = peak_bytes([] {});
  const double fused_seconds = trained(leaves, fused);
  const double eager_seconds = trained(leaves, eager);
  return {{"part", "operation"},
          {"name", name},
          {"gradients_differ_by", apart},
          {"fused_ms", fused_seconds * 1e3},
          {"eager_ms", eager_seconds * 1e3},
          {"times_faster", eager_seconds / fused_seconds},
          {"fused_peak_gib", static_cast<double>(once(fused) - base) / (1 << 30)},
          {"eager_peak_gib", static_cast<double>(once(eager) - base) / (1 << 30)}};
}

}  // namespace

nlohmann::json mlp_speed() {
  torch::manual_seed(1);
  Accelerator accelerator;
  Mlp net(512);
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-3));
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  const at::Tensor x = torch::randn({64, 784}, at::TensorOptions(accelerator.device()));
  const at::Tensor y =
      torch::randint(10, {64}, at::TensorOptions(at::kLong).device(accelerator.device()));
  const auto step = [&, &model = model, &optimizer = optimizer](const Tensors& in) -> Tensors {
    optimizer.zero_grad();
    const at::Tensor loss = F::cross_entropy(model(in[0]), in[1]);
    accelerator.backward(loss);
    optimizer.step();
    return {loss.detach()};
  };
  const double eager = median_seconds([&] { step({x, y}); }, 50, 7, 300);
  auto captured_step = accelerator.capture(step);
  const double captured = median_seconds([&] { captured_step({x, y}); }, 50, 7, 1000);
  return {{"part", "mlp"},
          {"eager_steps_per_second", 1 / eager},
          {"captured_steps_per_second", 1 / captured},
          {"fallback", captured_step.fallback_reason()}};
}

nlohmann::json optimizer_speed() {
  Accelerator accelerator;
  gpt2::Gpt2 prepared_net{gpt2::Config{}};
  torch::optim::AdamW adamw(prepared_net->parameters(), torch::optim::AdamWOptions(1e-3));
  auto [model, optimizer] = accelerator.prepare(prepared_net, adamw);
  for (at::Tensor parameter : prepared_net->parameters()) {
    parameter.mutable_grad() = torch::randn_like(parameter) * 1e-3;
  }
  const double prepared =
      median_seconds([&, &optimizer = optimizer] { optimizer.step(); }, 5, 7, 10);
  Accelerator with_flat({.flat = accelerate::FlatOptions{}});
  gpt2::Gpt2 net{gpt2::Config{}};
  auto flat_adamw = gpt2::adamw_for(*net, 1e-3, 0.01);
  auto flat_model = with_flat.prepare(net);
  auto flat_optimizer = with_flat.prepare(flat_adamw);
  for (const at::Tensor& parameter : net->parameters()) {
    parameter.mutable_grad() = torch::randn_like(parameter) * 1e-3;
  }
  const double fused = median_seconds([&] { flat_optimizer.step(); }, 5, 7, 10);
  const auto clip_and_step = [&] {
    with_flat.clip_grad_norm_(flat_model->parameters(), 1.0);
    flat_optimizer.step();
  };
  const double clipped = median_seconds(clip_and_step, 5, 7, 10);
  return {{"part", "optimizer"},
          {"prepared_fp32_ms", prepared * 1e3},
          {"flat_bf16_ms", fused * 1e3},
          {"flat_bf16_with_clipping_ms", clipped * 1e3}};
}

nlohmann::json operation_speed() {
  torch::manual_seed(3);
  auto rows = nlohmann::json::array();
  const int64_t count = 16 * 1024;
  const auto leaf = [](at::IntArrayRef sizes) {
    return torch::randn(sizes, bf16()).requires_grad_();
  };
  const at::Tensor x = leaf({count, 768});
  const at::Tensor branch = leaf({count, 768});
  const at::Tensor weight = leaf({768});
  const at::Tensor bias = leaf({768});
  const at::Tensor own_bias = leaf({768});
  const at::Tensor along = torch::randn({count, 768}, bf16());
  rows.push_back(compared(
      "residual + layer norm", {x, branch, weight, bias, own_bias},
      [&] {
        auto [sum, normed] = ops::residual_layer_norm(x, branch, weight, bias, 1e-5, own_bias);
        return (normed * along + sum).sum();
      },
      [&] {
        const at::Tensor sum = x + (branch + own_bias);
        return (at::layer_norm(sum, {768}, weight, bias) * along + sum).sum();
      }));
  rows.push_back(compared(
      "residual + RMS norm", {x, branch, weight},
      [&] {
        auto [sum, normed] = ops::residual_rms_norm(x, branch, weight);
        return (normed * along + sum).sum();
      },
      [&] {
        const at::Tensor sum = x + branch;
        return (at::rms_norm(sum, {768}, weight, 1e-6) * along + sum).sum();
      }));
  const auto [cosine, sine] = ops::rotary_angles(1024, 64);
  const at::Tensor own_cosine = cosine.to(gpu());
  const at::Tensor own_sine = sine.to(gpu());
  const at::Tensor wide_cosine = own_cosine.unsqueeze(1).to(at::kBFloat16);
  const at::Tensor wide_sine = own_sine.unsqueeze(1).to(at::kBFloat16);
  const auto heads = [](const at::Tensor& rows) { return rows.view({16, 1024, 12, 64}); };
  rows.push_back(compared(
      "rotary embedding", {x},
      [&] { return (ops::rotary_embedding(heads(x), own_cosine, own_sine) * heads(along)).sum(); },
      [&] {
        const auto halves = heads(x).chunk(2, -1);
        const at::Tensor turned = at::cat({halves[0] * wide_cosine - halves[1] * wide_sine,
                                           halves[1] * wide_cosine + halves[0] * wide_sine},
                                          -1);
        return (turned * heads(along)).sum();
      }));
  const at::Tensor wide = leaf({count, 3072});
  const at::Tensor wide_bias = leaf({3072});
  const at::Tensor wide_along = torch::randn({count, 3072}, bf16());
  rows.push_back(compared(
      "bias + gelu", {wide, wide_bias},
      [&] { return (ops::gelu(wide, wide_bias) * wide_along).sum(); },
      [&] { return (at::gelu(wide + wide_bias, "tanh") * wide_along).sum(); }));
  const at::Tensor pair = leaf({count, 6144});
  rows.push_back(compared(
      "swiglu", {pair}, [&] { return (ops::swiglu(pair) * wide_along).sum(); },
      [&] {
        const auto halves = pair.chunk(2, -1);
        return (at::silu(halves[0]) * halves[1] * wide_along).sum();
      }));
  const Head head;
  rows.push_back(compared(
      "linear + cross entropy", {head.x, head.table},
      [&] { return ops::linear_cross_entropy(head.x, head.table, head.target); },
      [&] {
        return F::cross_entropy(at::linear(head.x, head.table).to(at::kFloat), head.target);
      }));
  return rows;
}

nlohmann::json chunk_speed() {
  torch::manual_seed(3);
  auto rows = nlohmann::json::array();
  const Head head;
  const int64_t base = peak_bytes([] {});
  for (const int64_t chunk_rows : {2048, 4096, 8192, 16384}) {
    const auto loss = [&] {
      return ops::linear_cross_entropy(head.x, head.table, head.target, {.chunk_rows = chunk_rows});
    };
    const double seconds = trained({head.x, head.table}, loss);
    const int64_t peak = peak_bytes([&] { loss().backward(); });
    rows.push_back({{"part", "linear + cross entropy by chunks"},
                    {"chunk_rows", chunk_rows},
                    {"ms", seconds * 1e3},
                    {"peak_gib", static_cast<double>(peak - base) / (1 << 30)}});
  }
  return rows;
}

}  // namespace bench

// Trains GPT-2 from token files on one process or many: flat bf16 parameters with float32 masters,
// accumulation to a fixed number of tokens an update, a cosine schedule, clipping, sampling and
// checkpoints.
//
//   accelerate launch --num_processes 8 train_gpt2 --data train.bin --model 124M --batch 16
#include <accelerate/accelerate.h>
#include <accelerate/flat_parameters.h>
#include <accelerate/step_capture.h>
#include <torch/torch.h>

#include <chrono>

#include "gpt2.h"
#include "options.h"

namespace {

using accelerate::FlatAdamW;
using accelerate::FlatParameters;
using Tensors = std::vector<at::Tensor>;

// `count` tokens after a first one, each drawn from the 50 likeliest.
std::vector<int64_t> sample(gpt2::Gpt2& model, int64_t count, const c10::Device& device) {
  const torch::NoGradGuard no_grad;
  at::Tensor tokens = torch::zeros({1, 1}, at::TensorOptions(at::kLong).device(device));
  const int64_t choices = std::min<int64_t>(50, model->config.vocabulary);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t seen = std::min(tokens.size(1), model->config.positions);
    const at::Tensor scores = model->next_scores(tokens.narrow(1, tokens.size(1) - seen, seen));
    const auto [best, places] = scores.topk(choices, 1);
    const at::Tensor chosen = places.gather(1, best.softmax(1).multinomial(1));
    tokens = torch::cat({tokens, chosen}, 1);
  }
  const at::Tensor row = tokens[0].cpu();
  return {row.data_ptr<int64_t>(), row.data_ptr<int64_t>() + row.numel()};
}

int train(const Options& options) {
  accelerate::Accelerator accelerator;
  torch::manual_seed(options.seed);

  const accelerate::TokenDataset text(options.data, {.block = options.model.positions});
  auto loader = accelerator.prepare(accelerate::data_loader(
      text, {.batch_size = options.batch, .shuffle = true, .seed = options.seed}));
  const int64_t micro_tokens =
      options.batch * options.model.positions * accelerator.num_processes();
  const int64_t micro_batches = std::max<int64_t>(1, options.total_tokens / micro_tokens);

  gpt2::Gpt2 model(options.model);
  model->to(accelerator.device());
  auto flat = std::make_shared<FlatParameters>(
      *model,
      accelerate::FlatParametersOptions{.dtype = options.bf16 ? at::kBFloat16 : at::kFloat});
  flat->broadcast(accelerator.communicator());
  FlatAdamW optimizer(flat, {.lr = options.lr,
                             .beta2 = 0.95,
                             .weight_decay = options.weight_decay,
                             .max_norm = options.max_norm});
  auto schedule = accelerate::get_scheduler(
      "cosine", optimizer, {.warmup_steps = options.warmup, .training_steps = options.steps});
  // The optimizer brings the parameters along; the loader and the generators need not be named.
  accelerator.register_for_checkpointing(schedule, optimizer);
  if (!options.checkpoint.empty() && std::filesystem::exists(options.checkpoint)) {
    accelerator.load_state(options.checkpoint);
  }
  int64_t step = optimizer.steps();
  accelerator.print(text.tokens(), " tokens, ", micro_batches,
                    " micro-batches an update, from step ", step);

  const int64_t last = options.stop > 0 ? std::min(options.stop, options.steps) : options.steps;

  const auto micro_batch = [&](const Tensors& in) -> Tensors {
    const at::Tensor loss = model(in[0], in[1]) / static_cast<double>(micro_batches);
    loss.backward();
    return {loss.detach()};
  };
  auto replayed = accelerator.capture(micro_batch);

  at::Tensor loss = torch::zeros({}, accelerator.device());
  int64_t in_update = 0;
  int64_t logged = step;
  auto began = std::chrono::steady_clock::now();
  while (step < last) {
    for (auto& batch : loader) {
      const Tensors inputs{batch.data, batch.target};
      loss += (options.capture ? replayed(inputs) : micro_batch(inputs))[0];
      if (++in_update < micro_batches) continue;
      flat->average_gradients(accelerator.communicator());
      optimizer.step();
      schedule.step();
      flat->zero_grad();
      ++step;
      if (step % options.log_every == 0 || step == last) {
        const double mean = accelerator.reduce(loss, accelerate::ReduceOp::kMean).item<double>();
        const auto now = std::chrono::steady_clock::now();
        const std::chrono::duration<double> taken = now - began;
        began = now;
        const auto tokens = static_cast<double>(micro_tokens * micro_batches * (step - logged));
        logged = step;
        accelerator.print("step ", step, " loss ", mean, " norm ",
                          optimizer.last_norm().item<double>(), " lr ", schedule.last_lr()[0],
                          " tokens/s ", static_cast<int64_t>(tokens / taken.count()));
      }
      loss.zero_();
      in_update = 0;
      const bool due = options.save_every > 0 && step % options.save_every == 0;
      if (!options.checkpoint.empty() && (due || step == last)) {
        // Written while the training goes on.
        auto ticket = accelerator.save_state(options.checkpoint, {.async = true});
        if (step == last) ticket.wait();
      }
      if (step == last) break;
    }
  }
  if (options.sample_tokens > 0 && accelerator.is_main_process()) {
    std::cout << "sample";
    for (const int64_t token : sample(model, options.sample_tokens, accelerator.device())) {
      std::cout << " " << token;
    }
    std::cout << "\n";
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  return accelerate::run([&] { return train(options); });
}

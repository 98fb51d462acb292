// Trains GPT-2 from token files on one process or many: flat bf16 parameters with float32 masters,
// accumulation to a fixed number of tokens an update, a cosine schedule, clipping, sampling and
// checkpoints.
//
//   accelerate launch --num_processes 8 train_gpt2 --data train.bin --model 124M --batch 16
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <chrono>

#include "gpt2.h"
#include "options.h"

namespace {

using Batch = accelerate::Sample;  // tokens and those that follow them

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
  const int64_t micro_tokens = options.batch * options.model.positions *
                               accelerate::ProcessState::from_environment().world_size();
  const int64_t micro_batches = std::max<int64_t>(1, options.total_tokens / micro_tokens);
  accelerate::Accelerator accelerator(
      {.gradient_accumulation = {.steps = micro_batches, .sync_with_dataloader = false},
       .scheduler = {.pace = accelerate::SchedulerPace::kPerOptimizerStep},
       .flat = accelerate::FlatOptions{.dtype = options.bf16 ? at::kBFloat16 : at::kFloat}});
  torch::manual_seed(options.seed);

  const accelerate::TokenDataset text(options.data, {.block = options.model.positions});
  auto loader = accelerator.prepare(accelerate::data_loader(
      text, {.batch_size = options.batch, .shuffle = true, .seed = options.seed}));
  gpt2::Gpt2 net(options.model);
  auto adamw = gpt2::adamw_for(*net, options.lr, options.weight_decay);
  auto cosine = accelerate::get_scheduler(
      "cosine", adamw, {.warmup_steps = options.warmup, .training_steps = options.steps});
  auto model = accelerator.prepare(net);
  auto optimizer = accelerator.prepare(adamw);
  auto schedule = accelerator.prepare(cosine);
  if (!options.checkpoint.empty() && std::filesystem::exists(options.checkpoint)) {
    accelerator.load_state(options.checkpoint);
  }
  accelerator.print(text.tokens(), " tokens, ", micro_batches,
                    " micro-batches an update, from step ", optimizer.step_count());

  // Returns the loss and, where it ends a window, the norm of the gradients.
  const auto micro_batch = [&](const Batch& batch) {
    const at::Tensor loss = model(batch.data, batch.target);
    accelerator.backward(loss);
    at::Tensor norm;
    if (accelerator.sync_gradients()) {
      norm = accelerator.clip_grad_norm_(model->parameters(), options.max_norm);
    }
    optimizer.step();
    schedule.step();
    optimizer.zero_grad();
    return std::pair(loss.detach(), norm);
  };
  auto replayed = accelerator.capture(micro_batch);
  const auto run = [&](const Batch& batch) {
    if (options.capture) return replayed(batch);
    const auto window = accelerator.accumulate(model);
    return micro_batch(batch);
  };

  const int64_t last = options.stop > 0 ? std::min(options.stop, options.steps) : options.steps;
  int64_t step = optimizer.step_count();
  int64_t logged = step;
  at::Tensor sum = torch::zeros({}, accelerator.device());
  auto began = std::chrono::steady_clock::now();
  while (step < last) {
    for (auto& batch : loader) {
      const auto [loss, norm] = run(batch);
      sum += loss;
      if (!accelerator.sync_gradients()) continue;
      ++step;
      if (step % options.log_every == 0 || step == last) {
        const double mean = accelerator.reduce(sum, accelerate::ReduceOp::kMean).item<double>() /
                            static_cast<double>(micro_batches);
        const auto now = std::chrono::steady_clock::now();
        const std::chrono::duration<double> taken = now - began;
        began = now;
        const auto tokens = static_cast<double>(micro_tokens * micro_batches * (step - logged));
        logged = step;
        accelerator.print("step ", step, " loss ", mean, " norm ", norm.item<double>(), " lr ",
                          schedule.last_lr()[0], " tokens/s ",
                          static_cast<int64_t>(tokens / taken.count()));
      }
      sum.zero_();
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
    for (const int64_t token : sample(net, options.sample_tokens, accelerator.device())) {
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

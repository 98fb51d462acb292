// Saves the state of the training every few steps, and goes on from the newest complete checkpoint
// when it is started again: in the middle of an epoch and of a window of accumulation, with the
// same result as if it had never stopped.
//
//   checkpointing [FOLDER]         trains to the end
//   checkpointing FOLDER BATCHES   leaves after that many batches, as if it had been interrupted
#include <cstdlib>
#include <filesystem>
#include <iomanip>

#include "../command_line.h"
#include "toy.h"

namespace {

constexpr int kBatches = 40;

// Something of one's own that belongs to the training.
struct RunningMean {
  double mean = 0;
  int64_t count = 0;

  void add(double value) { mean += (value - mean) / static_cast<double>(++count); }
  accelerate::StateDict state_dict() const { return {{"mean", mean}, {"count", count}}; }
  void load_state_dict(const accelerate::StateDict& state) {
    mean = state.at("mean").as_number();
    count = state.at("count").as_integer();
  }
};

void train(const std::filesystem::path& folder, int64_t leave_after) {
  accelerate::Accelerator accelerator(
      {.gradient_accumulation = {.steps = 3},
       .project = {.project_dir = folder, .automatic_checkpoint_naming = true, .total_limit = 2}});
  accelerate::set_seed(42);  // of the order of the data: a new run repeats the last one
  auto line = toy::flat_line();
  torch::optim::AdamW adamw(line->parameters(), 0.05);
  auto batches =
      accelerate::data_loader(toy::points_on_a_line(100), {.batch_size = 4, .shuffle = true});
  auto schedule =
      accelerate::get_scheduler("linear", adamw, {.warmup_steps = 2, .training_steps = 200});
  auto [model, optimizer, loader, scheduler] = accelerator.prepare(line, adamw, batches, schedule);
  RunningMean losses;
  accelerator.register_for_checkpointing(losses);

  accelerator.resume();
  const int64_t begun_at = losses.count;
  std::optional<accelerate::SaveTicket> ticket;
  while (losses.count < kBatches) {
    for (auto& batch : loader) {  // the first pass goes on where the checkpoint was made
      auto window = accelerator.accumulate(model);
      const auto loss = torch::mse_loss(model(batch.data), batch.target);
      accelerator.backward(loss);
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
      losses.add(accelerator.reduce(loss.detach(), accelerate::ReduceOp::kMean).item<double>());
      // Copies the state and goes on; a thread writes it.
      if (losses.count % 7 == 0) ticket = accelerator.save_state({}, {.async = true});
      if (losses.count == kBatches || losses.count == leave_after) break;
    }
    if (losses.count == leave_after) break;
  }
  if (ticket) ticket->wait();  // now it is certain that the last one is there
  const auto found = toy::parameters_of(model.parameters());
  accelerator.print("from ", begun_at, " to ", losses.count, ": mean loss ", std::setprecision(17),
                    losses.mean, ", y = ", found[0].item<double>(), " x + ",
                    found[1].item<double>());
}

}  // namespace

int main(int argc, char** argv) {
  const Words words(argc, argv, "[FOLDER] [BATCHES]",
                    "Saves its state to FOLDER [checkpointing_state] and resumes from there; stops "
                    "after BATCHES [40].");
  return accelerate::run(
      [&] { train(words.text(0, "checkpointing_state"), words.count(1, kBatches)); });
}

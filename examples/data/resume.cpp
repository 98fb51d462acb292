// Stops in the middle of an epoch and goes on there in another run, on any number of processes:
//
//   accelerate launch --num_processes 2 ./data_resume place.pt 5   # stops after 5 batches
//   ./data_resume place.pt                                         # finishes the epoch
//
// The order is shuffled with a seed that nobody chose; each number is seen once all the same.
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "../command_line.h"

constexpr int64_t kNumbers = 1000;

void save(const std::string& file, const accelerate::LoaderState& state, torch::Tensor seen) {
  torch::serialize::OutputArchive archive;
  archive.write("seen", seen);
  archive.write("seed", c10::IValue(static_cast<int64_t>(state.seed)));
  archive.write("epoch", c10::IValue(state.epoch));
  archive.write("position", c10::IValue(state.position));
  archive.write("size", c10::IValue(state.size));
  archive.save_to(file);
}

accelerate::LoaderState load(const std::string& file, torch::Tensor& seen) {
  torch::serialize::InputArchive archive;
  archive.load_from(file);
  archive.read("seen", seen);
  const auto number = [&](const char* name) {
    c10::IValue value;
    archive.read(name, value);
    return value.toInt();
  };
  return {.seed = static_cast<uint64_t>(number("seed")),
          .epoch = number("epoch"),
          .position = number("position"),
          .size = number("size")};
}

int run_epoch(const std::string& file, int64_t batches) {
  accelerate::Accelerator accelerator;
  std::vector<int64_t> numbers(kNumbers);
  std::iota(numbers.begin(), numbers.end(), 0);
  auto loader = accelerator.prepare(
      accelerate::data_loader(numbers, {.batch_size = 16, .shuffle = true, .num_workers = 2}));

  auto before = torch::zeros({kNumbers}, torch::kInt64);
  if (std::filesystem::exists(file)) loader.load_state_dict(load(file, before));
  auto seen = torch::zeros({kNumbers}, torch::dtype(torch::kInt64).device(accelerator.device()));

  bool finished = true;
  int64_t taken = 0;
  for (auto& batch : loader) {
    const int64_t valid = batch.info().valid;  // the rest only evens out the ranks
    seen.index_add_(0, batch.data.slice(0, 0, valid), seen.new_ones({valid}));
    if (++taken == batches) {
      finished = batch.info().is_last;
      break;
    }
  }
  const auto total = before + accelerator.reduce(seen).cpu();
  const auto state = loader.state_dict();  // equal on all ranks

  if (!finished) {
    if (accelerator.is_main_process()) save(file, state, total);
    accelerator.print("stopped at sample ", state.position, " of epoch ", state.epoch);
    return 0;
  }
  const bool once = total.eq(1).all().item<bool>();
  accelerator.print("each of ", kNumbers, " numbers was seen once: ", once ? "yes" : "no");
  return once ? 0 : 1;
}

int main(int argc, char** argv) {
  const Words words(argc, argv, "[FILE] [BATCHES]",
                    "Reads an epoch; stops after BATCHES [all] and continues from FILE [place.pt] "
                    "when it is started again.");
  return accelerate::run([file = words.file(0, "place.pt", true),
                          batches = words.count(1, kNumbers)] { return run_epoch(file, batches); });
}

// Random numbers: equal on all ranks where they should be, different where they should be.
#include <accelerate/random.h>
#include <torch/torch.h>

#include "selftest/expect.h"

namespace accelerate::selftest {
namespace {

at::Tensor draw(c10::Device device) { return torch::rand({5}, device).cpu(); }

Findings check_synchronisation(Accelerator& accelerator) {
  const c10::Device device = accelerator.device();
  set_seed(100, {.device_specific = true, .rank = accelerator.process_index()});
  synchronize_rng_states(accelerator.communicator(), {RngType::kTorch});
  if (!device.is_cpu()) {
    synchronize_rng_states(accelerator.communicator(), {RngType::kCuda}, std::nullopt, device);
  }
  const at::Tensor own = draw(device);
  set_seed(100, {.rank = accelerator.process_index()});
  expect_same("numbers after rank 0's state was given to all", own, draw(device));
  return {.detail = device.is_cpu() ? "CPU" : "CPU and GPU"};
}

Findings check_seeds(Accelerator& accelerator) {
  const c10::Device device = accelerator.device();
  set_seed(42, {.rank = accelerator.process_index()});
  const at::Tensor same = draw(device);
  expect_same("numbers after one seed", same, accelerator.broadcast(same));
  const uint64_t seed =
      set_seed(42, {.device_specific = true, .rank = accelerator.process_index()});
  expect_equal("seed of this rank", seed,
               uint64_t{42} + static_cast<uint64_t>(accelerator.process_index()));
  const auto all = accelerator.gather_object(draw(device));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    expect_true("rank " + std::to_string(rank) + " draws different numbers from rank 0",
                !all[rank].equal(all[0]));
  }
  return {};
}

}  // namespace

std::vector<Check> random_checks() {
  return {{"random numbers", "synchronised states", plain_options(), check_synchronisation, true},
          {"random numbers", "seeds", plain_options(), check_seeds, true}};
}

}  // namespace accelerate::selftest

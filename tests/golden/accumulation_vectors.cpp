// When gradients are synchronised in windows of accumulation, against the record of the reference:
// by the counter alone, and in a loop over a prepared loader.
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <map>

#include "golden/case_log.h"
#include "golden/reference_data.h"
#include "support/ranks.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

void count_windows(const json& recorded, CaseLog& log) {
  detail::AccumulationWindow window(recorded.at("num_steps"), recorded.at("sync_with_dataloader"));
  const int64_t batches = recorded.at("batches_per_rank");
  for (const json& epoch : recorded.at("epochs")) {
    std::vector<bool> syncs;
    std::vector<int64_t> counters;
    for (int64_t batch = 0; batch < batches; ++batch) {
      window.begin_micro_batch(batch + 1 == batches);
      syncs.push_back(window.sync_gradients());
      counters.push_back(window.step());
    }
    log.expect_equal("sync", syncs, epoch.at("sync_gradients").get<std::vector<bool>>());
    log.expect_equal("counter", counters, epoch.at("step_counter").get<std::vector<int64_t>>());
  }
}

void loop_over_loader(const json& recorded, CaseLog& log) {
  Accelerator accelerator(
      {.cpu = true,
       .gradient_accumulation = {.steps = recorded.at("num_steps").get<int64_t>(),
                                 .sync_with_dataloader = recorded.at("sync_with_dataloader")}});
  const int64_t n = recorded.at("batches_per_rank").get<int64_t>() * accelerator.num_processes();
  auto [model, loader] = accelerator.prepare(
      std::make_shared<torch::nn::LinearImpl>(1, 1),
      data_loader(TensorDataset(torch::arange(n), torch::arange(n)), {.batch_size = 1}));
  for (const json& epoch : recorded.at("epochs")) {
    std::vector<bool> syncs;
    std::vector<bool> averages;
    for ([[maybe_unused]] auto& batch : loader) {
      const auto micro_batch = accelerator.accumulate(model);
      syncs.push_back(accelerator.sync_gradients());
      averages.push_back(model.strategy()->gradient_sync() == GradientSync::kOn);
    }
    const auto expected = epoch.at("sync_gradients").get<std::vector<bool>>();
    log.expect_equal("sync of the loop", syncs, expected);
    if (accelerator.num_processes() > 1) {
      log.expect_equal("what the model averages", averages, expected);
    }
  }
}

TEST(Vectors, GradientAccumulationSyncSchedule) {
  const json vectors = load_vectors("gradient_accumulation_sync_schedule.json");
  CaseLog log;
  for (const json& recorded : vectors) {
    log.run(inputs_of(recorded), [&] { count_windows(recorded, log); });
  }
  log.report();
}

struct AccumulationVectorsOnRanks : Ranks {};

TEST_F(AccumulationVectorsOnRanks, GradientAccumulationSyncSchedule) {
  const json vectors = load_vectors("gradient_accumulation_sync_schedule.json");
  for (const auto& [world_size, cases] : by_world_size(vectors)) {
    run(world_size,
        [&cases = cases](const Rank&) {
          CaseLog log;
          for (const json& recorded : cases) {
            log.run(inputs_of(recorded), [&] { loop_over_loader(recorded, log); });
          }
          log.report();
        },
        {.deadline = std::chrono::seconds(120)});
  }
}

}  // namespace
}  // namespace accelerate::test

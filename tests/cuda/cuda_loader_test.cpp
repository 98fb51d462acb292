// How batches reach a GPU. Every test is skipped, visibly, where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "accelerate/accelerate.h"
#include "accelerate/detail/placing_feed.h"
#include "cuda/lone_gpu.h"

namespace accelerate {
namespace {

using test::Rank;

struct CudaLoader : test::LoneRank {};

TensorDataset rows(int64_t n, int64_t width) {
  return {torch::arange(n * width).view({n, width}), torch::arange(n)};
}

// The batches of a pass as they are when the GPU has worked on them, on the CPU.
template <class Loader>
std::vector<at::Tensor> used_on_the_gpu(Loader& loader, int work) {
  std::vector<at::Tensor> results;
  for (auto& batch : loader) {
    EXPECT_TRUE(batch.data.is_cuda());
    EXPECT_TRUE(batch.target.is_cuda());
    at::Tensor busy = torch::rand({512, 512}, batch.data.options().dtype(at::kFloat));
    for (int i = 0; i < work; ++i) busy = busy.matmul(busy).clamp(-1, 1);
    // Depends on the batch only after the GPU was kept busy: a buffer that is reused too early, or
    // a copy that was not waited for, would show.
    results.push_back(batch.data + (busy.sum() * 0).to(at::kLong));
  }
  std::vector<at::Tensor> on_cpu;
  for (const at::Tensor& result : results) on_cpu.push_back(result.cpu());
  return on_cpu;
}

TEST_F(CudaLoader, BatchesArriveWholeWhileTheGpuIsBusy) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    for (const bool non_blocking : {true, false}) {
      for (const int workers : {0, 2}) {
        Accelerator accelerator({.data_loader = {.non_blocking = non_blocking}});
        const auto dataset = rows(512, 4096);
        auto loader =
            accelerator.prepare(data_loader(dataset, {.batch_size = 16, .num_workers = workers}));
        const auto batches = used_on_the_gpu(loader, 20);
        ASSERT_EQ(batches.size(), 32u);
        const at::Tensor all = at::cat(batches);
        EXPECT_TRUE(at::equal(all, torch::arange(512 * 4096).view({512, 4096})))
            << "non_blocking " << non_blocking << " workers " << workers;
      }
    }
  });
}

TEST_F(CudaLoader, BatchesTravelFromPinnedMemoryUnlessToldOtherwise) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    struct Remembering {
      size_t size() const { return 8; }
      at::Tensor get(size_t index) const { return torch::full({4}, int64_t(index)); }
    };
    const Accelerator accelerator;
    const LoaderShard shard{.device = accelerator.device()};
    LoaderOptions options{.batch_size = 4};
    EXPECT_TRUE(detail::pins_memory(options, shard));
    options.pin_memory = false;
    EXPECT_FALSE(detail::pins_memory(options, shard));
    detail::MapMaker<Remembering, detail::DefaultCollate> maker(
        std::make_shared<Remembering>(), std::make_shared<detail::DefaultCollate>(),
        {.samples = 8, .options = {.batch_size = 4}});
    detail::PinningMaker pinning(std::move(maker), true);
    int64_t number = 0;
    ASSERT_TRUE(pinning.draw(number));
    EXPECT_TRUE(pinning.build(std::move(number), false).value.data.is_pinned());
  });
}

TEST_F(CudaLoader, TheNextBatchIsCopiedWhileThePresentOneIsUsed) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    Accelerator accelerator;
    // After begin() the copy of batch 1 is under way though nobody asked for it.
    struct Counting {
      std::shared_ptr<int> reads = std::make_shared<int>(0);
      size_t size() const { return 8; }
      at::Tensor get(size_t index) const {
        ++*reads;
        return torch::full({4}, int64_t(index));
      }
    };
    const Counting dataset;
    auto loader = accelerator.prepare(data_loader(dataset, {.batch_size = 2}));
    auto it = loader.begin();
    EXPECT_EQ(*dataset.reads, 4);
    EXPECT_TRUE(at::equal(it->data[1].cpu(), torch::full({4}, int64_t{1})));
    EXPECT_EQ(loader.state_dict().position, 2);  // what is on its way was not used up
  });
}

TEST_F(CudaLoader, AnErrorComesWithItsBatchThoughItWasReadAhead) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    struct Failing {
      size_t size() const { return 6; }
      at::Tensor get(size_t index) const {
        if (index == 4) throw std::runtime_error("disk gone");
        return torch::full({4}, int64_t(index));
      }
    };
    Accelerator accelerator;
    auto loader = accelerator.prepare(data_loader(Failing(), {.batch_size = 2}));
    int seen = 0;
    EXPECT_THROW(
        for (auto& batch
             : loader) {
          EXPECT_EQ(batch.data.size(0), 2);
          ++seen;
        },
        DataError);
    EXPECT_EQ(seen, 2);
  });
}

TEST_F(CudaLoader, UnplacedBatchesStayOnTheCpu) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    Accelerator accelerator;
    auto loader = accelerator.prepare(unplaced(data_loader(rows(4, 2), {.batch_size = 2})));
    for (auto& batch : loader) EXPECT_TRUE(batch.data.is_cpu());
  });
}

TEST_F(CudaLoader, TheCudaGeneratorIsGivenToAllRanks) {
  run(2, [](const Rank& rank) {
    REQUIRE_GPU();
    Accelerator accelerator({.data_loader = {.rng_types = {"cuda"}},
                             .process_group = {.cuda_backend = CudaBackend::kGloo}});
    torch::manual_seed(rank.rank);
    auto loader = accelerator.prepare(data_loader(rows(8, 2), {.batch_size = 2}));
    for (auto& batch : loader) {
      (void)batch;
      break;
    }
    const at::Tensor drawn = torch::rand({4}, accelerator.device());
    const at::Tensor both = accelerator.gather(drawn.cpu()).view({2, 4});
    EXPECT_TRUE(at::equal(both[0], both[1]));
  });
}

TEST_F(CudaLoader, DispatchedBatchesReachTheGpuOfEachRank) {
  run(2, [](const Rank& rank) {
    REQUIRE_GPU();
    Accelerator accelerator({.data_loader = {.dispatch_batches = true},
                             .process_group = {.cuda_backend = CudaBackend::kGloo}});
    auto loader = accelerator.prepare(
        data_loader(rows(64, 128), {.batch_size = 8, .num_workers = rank.rank == 0 ? 1 : 0}));
    const at::Tensor own = at::cat(used_on_the_gpu(loader, 5));
    const at::Tensor whole = torch::arange(64 * 128).view({4, 2, 8, 128});
    EXPECT_TRUE(at::equal(own, whole.select(1, rank.rank).reshape({32, 128})));
  });
}

}  // namespace
}  // namespace accelerate

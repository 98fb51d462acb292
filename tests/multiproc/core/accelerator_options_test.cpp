// Options of an accelerator and of its calls, each seen at work.
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "multiproc/loading.h"
#include "multiproc/state_folder.h"
#include "multiproc/training.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct AcceleratorCalls : Ranks {};

TEST_F(AcceleratorCalls, BackwardKeepsTheGraphIfItIsTold) {
  run(1, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<torch::nn::LinearImpl>(3, 1);
    auto model = accelerator.prepare(net);
    const at::Tensor loss = model(ones({2, 3})).square().sum();
    accelerator.backward(loss, {.retain_graph = true});
    const at::Tensor once = net->weight.grad().clone();
    EXPECT_GT(once.abs().sum().item<double>(), 0);
    accelerator.backward(loss);
    EXPECT_TRUE(torch::allclose(net->weight.grad(), 2 * once));
    EXPECT_THROW(accelerator.backward(loss), c10::Error);  // the graph is gone by now
  });
}

TEST_F(AcceleratorCalls, OptionsCanBeReadBackWithWhatTheEnvironmentSaid) {
  run(2, [](const Rank& rank) {
    setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "3", 1);
    setenv("ACCELERATE_MIXED_PRECISION", "bf16", 1);
    setenv("ACCELERATE_COLLECTIVE_TIMEOUT", "1234.5", 1);
    setenv("ACCELERATE_RENDEZVOUS_TIMEOUT", "77", 1);
    AcceleratorOptions options = on_cpu();
    options.process_group.timeout.reset();
    options.ddp.bucket_cap_mb = 7;
    const Accelerator accelerator(options);
    EXPECT_EQ(accelerator.options().gradient_accumulation.steps, 3);
    EXPECT_EQ(accelerator.options().mixed_precision, MixedPrecision::kBf16);
    EXPECT_EQ(accelerator.options().ddp.bucket_cap_mb, 7);
    EXPECT_EQ(accelerator.options().process_group.timeout, std::chrono::milliseconds(1234500));
    // The program's own word counts before the variable.
    EXPECT_EQ(accelerator.options().process_group.rendezvous_timeout, kUnreachedTimeout);
    EXPECT_EQ(rank.world_size, accelerator.num_processes());
  });
}

TEST_F(AcceleratorCalls, ATimeoutOfTheEnvironmentEndsAWait) {
  spawn(2, [](const Rank& rank) {
    setenv("ACCELERATE_COLLECTIVE_TIMEOUT", "2", 1);
    AcceleratorOptions options = on_cpu();
    options.process_group.timeout.reset();
    const Accelerator accelerator(options);
    if (rank.rank == 0) {
      EXPECT_THAT(thrown_by<CommError>([&] { accelerator.wait_for_everyone(); }),
                  HasSubstr("rank 1"));
      return;
    }
    while (true) pause();  // until it is killed
  });
  EXPECT_EQ(exit_code_of(0), kExitPassed);
  kill_rank(1);
}

TEST_F(AcceleratorCalls, ATimeoutThatIsNotANumberOfSecondsNamesItsVariable) {
  run(1, [](const Rank&) {
    for (const char* text : {"0", "-1", "ten", "10s", "nan", "1e300"}) {
      setenv("ACCELERATE_COLLECTIVE_TIMEOUT", text, 1);
      AcceleratorOptions options = on_cpu();
      options.process_group.timeout.reset();
      EXPECT_THAT(thrown_by<ConfigError>([&] { const Accelerator accelerator(options); }),
                  testing::AllOf(HasSubstr("environment variable ACCELERATE_COLLECTIVE_TIMEOUT"),
                                 HasSubstr(text)));
    }
  });
}

// A device from which nothing can be copied shows what is moved.
struct NetOnMeta : torch::nn::Module {
  NetOnMeta() : weight(register_parameter("weight", torch::zeros({3}, c10::kMeta))) {}
  at::Tensor forward(const at::Tensor& input) { return input * weight; }

  at::Tensor weight;
};

TEST_F(AcceleratorCalls, ModelsAndBatchesStayWhereTheyAreWithoutDevicePlacement) {
  run(1, [](const Rank&) {
    AcceleratorOptions options = on_cpu();
    options.device_placement = false;
    Accelerator accelerator(options);
    const auto net = std::make_shared<NetOnMeta>();
    auto model = accelerator.prepare(net);
    EXPECT_TRUE(net->weight.is_meta());
    // Batches that are made there.
    const auto made = [](std::vector<int64_t>&& numbers) {
      return torch::empty({static_cast<int64_t>(numbers.size())}, c10::kMeta);
    };
    auto loader =
        accelerator.prepare(data_loader(std::vector<int64_t>{1, 2, 3, 4}, {.batch_size = 2}, made));
    int batches = 0;
    for (auto& batch : loader) {
      EXPECT_TRUE(batch.data.is_meta());
      ++batches;
    }
    EXPECT_EQ(batches, 2);
  });
}

TEST_F(AcceleratorCalls, ModelsAreMovedToTheDeviceOtherwise) {
  run(1, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    const auto net = std::make_shared<NetOnMeta>();
    EXPECT_THAT(usage_error([&] { accelerator.prepare(net); }),
                HasSubstr("'weight' is on the meta device"));
  });
}

// Turns one bit of the last byte of the file, which belongs to a tensor.
void turn_last_bit(const std::filesystem::path& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const int last = file.get();
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(last ^ 0x40));
}

TEST_F(AcceleratorCalls, LoadStateFindsDamagedDataUnlessItIsToldNotToLook) {
  const StateFolder folder;
  run(2, [&](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<torch::nn::LinearImpl>(3, 1);
    auto model = accelerator.prepare(net);
    accelerator.save_state(folder / "state");
    const at::Tensor before = net->weight.detach().clone();
    accelerator.wait_for_everyone();
    if (rank.rank == 0) turn_last_bit(folder / "state" / "model.safetensors");
    accelerator.wait_for_everyone();
    EXPECT_THAT(thrown_by<CheckpointError>([&] { accelerator.load_state(folder / "state"); }),
                HasSubstr("the checkpoint is damaged"));
    EXPECT_TRUE(net->weight.equal(before));
    accelerator.load_state(folder / "state", {.verify_data = false});
    EXPECT_FALSE(net->weight.equal(before));  // what the damaged file holds
  });
}

TEST_F(AcceleratorCalls, ASaveThatIsToldToWaitsForTheOneThatStillWrites) {
  const StateFolder folder;
  run(2, [&](const Rank&) {
    Accelerator accelerator(on_cpu());
    // Large enough to be still at it.
    auto net = std::make_shared<torch::nn::LinearImpl>(4000, 4000);
    auto model = accelerator.prepare(net);
    const SaveTicket first = accelerator.save_state(folder / "first", {.async = true});
    {
      const torch::NoGradGuard no_grad;
      net->bias.fill_(3);
    }
    const SaveTicket second = accelerator.save_state(
        folder / "second", {.async = true, .while_saving = WhileSaving::kWait});
    EXPECT_TRUE(first.done());
    EXPECT_TRUE(std::filesystem::exists(folder / "first" / "manifest.json"));
    second.wait();
    accelerator.load_state(folder / "first");
    EXPECT_FALSE(net->bias.eq(3).all().item<bool>());
    accelerator.load_state(folder / "second");
    EXPECT_TRUE(net->bias.eq(3).all().item<bool>());
  });
}

constexpr uint64_t kSeedOfDirections = 7;

AcceleratorOptions with_power_sgd(double epsilon) {
  PowerSgdOptions power{.start_power_sgd_iter = 2, .min_compression_rate = 0.5};
  power.use_error_feedback = false;
  power.orthogonalization_epsilon = epsilon;
  power.random_seed = kSeedOfDirections;
  return on_cpu({.comm_hook = {.hook = CommHook::kPowerSgd, .power_sgd = power}});
}

// A gradient of rank 1 on both ranks, and the part of it that PowerSGD lets through.
struct OuterProduct {
  at::Tensor input = torch::arange(1, 7, at::kFloat).view({1, 6});
  at::Tensor slopes = torch::arange(1, 9, at::kFloat);

  double part_that_arrives(double epsilon) const {
    Accelerator accelerator(with_power_sgd(epsilon));
    auto net = std::make_shared<torch::nn::LinearImpl>(torch::nn::LinearOptions(6, 8).bias(false));
    auto model = accelerator.prepare(net);
    for (int pass = 0; pass < 3; ++pass) {  // the first two travel whole
      net->zero_grad();
      accelerator.backward((model(input.to(test_device())) * slopes.to(test_device())).sum());
    }
    const at::Tensor parts = net->weight.grad().cpu() / at::outer(slopes, input[0]);
    EXPECT_LT((parts.max() - parts.min()).item<double>(), 1e-4);
    return parts.mean().item<double>();
  }

  // By the definition, with directions q and p = the sum of gradient * q over both ranks.
  double part_by_definition(double epsilon) const {
    const auto generator = at::detail::createCPUGenerator(kSeedOfDirections * 0x9E3779B97F4A7C15);
    const at::Tensor random = torch::randn({6, 1}, generator);
    const double along = at::matmul(input, random / (random.norm() + epsilon)).item<double>();
    const double length = 2 * slopes.norm().item<double>() * std::abs(along);
    return std::pow(length / (length + epsilon), 2);
  }
};

TEST_F(AcceleratorCalls, PowerSgdAddsTheEpsilonToTheLengthOfADirection) {
  run(2, [](const Rank&) {
    const OuterProduct gradient;
    EXPECT_NEAR(gradient.part_that_arrives(0), 1, 1e-4);
    for (const double epsilon : {0.5, 10.0, 40.0}) {
      const double expected = gradient.part_by_definition(epsilon);
      EXPECT_LT(expected, 0.999) << epsilon;  // or it would not be seen
      EXPECT_NEAR(gradient.part_that_arrives(epsilon), expected, 1e-4) << epsilon;
    }
  });
}

TEST_F(AcceleratorCalls, PowerSgdRefusesANegativeEpsilon) {
  run(2, [](const Rank&) {
    EXPECT_THAT(thrown_by<UsageError>([] {
                  Accelerator accelerator(with_power_sgd(-1e-8));
                  accelerator.prepare(std::make_shared<torch::nn::LinearImpl>(6, 8));
                }),
                HasSubstr("orthogonalization_epsilon must not be negative"));
  });
}

size_t times_said(const std::string& output, const std::string& text) {
  size_t times = 0;
  for (size_t at = output.find(text); at != std::string::npos; at = output.find(text, at + 1)) {
    ++times;
  }
  return times;
}

TEST_F(AcceleratorCalls, PrepareSaysOnceHowLargeBatchesAreAndHowSchedulesMove) {
  spawn(2,
        [](const Rank&) {
          Accelerator accelerator(on_cpu());
          const auto numbers = data_loader(Integers{256}, {.batch_size = 64});
          const auto train = accelerator.prepare(numbers);
          const auto eval = accelerator.prepare(numbers);
          auto net = std::make_shared<Mlp>();
          torch::optim::SGD sgd(net->parameters(), 0.1);
          auto [model, optimizer, first, second] = accelerator.prepare(
              net, sgd, get_scheduler("constant", sgd), get_scheduler("constant", sgd));
          AcceleratorOptions splitting = on_cpu();
          splitting.data_loader.split_batches = true;
          Accelerator other(splitting);
          const auto split = other.prepare(numbers);
        },
        {.environment = {{"ACCELERATE_LOG_LEVEL", "info"}}});
  for (const int rank : {0, 1}) EXPECT_EQ(exit_code_of(rank), 0);
  EXPECT_EQ(times_said(output_of(0), "info: batch 128 = 64 x 2 ranks\n"), 1u) << output_of(0);
  EXPECT_EQ(times_said(output_of(0), "info: batch 64 = 32 x 2 ranks\n"), 1u);
  EXPECT_EQ(times_said(output_of(0), "warning: the scheduler makes 2 steps per call"), 1u);
  EXPECT_EQ(times_said(output_of(1), "ranks") + times_said(output_of(1), "scheduler"), 0u);
}

}  // namespace
}  // namespace accelerate::test

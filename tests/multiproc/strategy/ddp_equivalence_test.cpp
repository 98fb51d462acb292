// P ranks, each with its rows, end with the parameters of one process on all rows.
#include "multiproc/training.h"

namespace accelerate::test {
namespace {

constexpr int kSteps = 5;

struct ConvNet : Net {
  ConvNet()
      : conv(register_module("conv", torch::nn::Conv2d(2, 4, 3))),
        linear(register_module("linear", torch::nn::Linear(4 * 4 * 4, 3))) {}
  at::Tensor forward(at::Tensor input) override {
    return linear(torch::relu(conv(input)).flatten(1));
  }

  torch::nn::Conv2d conv;
  torch::nn::Linear linear;
};

// Two modules that hold one and the same parameter, and a third of their own.
struct TiedNet : Net {
  struct Half : torch::nn::Module {
    explicit Half(at::Tensor shared) : weight(register_parameter("weight", std::move(shared))) {}
    at::Tensor weight;
  };

  TiedNet()
      : encoder(register_module("encoder", std::make_shared<Half>(torch::randn({6, 6}) * 0.4))),
        decoder(register_module("decoder", std::make_shared<Half>(encoder->weight))),
        head(register_module("head", torch::nn::Linear(6, 3))) {}
  at::Tensor forward(at::Tensor input) override {
    return head(torch::tanh(input.matmul(encoder->weight)).matmul(decoder->weight.t()));
  }

  std::shared_ptr<Half> encoder, decoder;
  torch::nn::Linear head;
};

// Rows of the table are seen by some steps only, so that sparse gradients have holes.
struct SparseNet : Net {
  SparseNet()
      : table(register_module(
            "table", torch::nn::Embedding(torch::nn::EmbeddingOptions(16, 5).sparse(true)))),
        head(register_module("head", torch::nn::Linear(5, 3))) {}
  at::Tensor forward(at::Tensor input) override {
    return head(table((input.select(1, 0) * 4).to(at::kLong).clamp(-8, 7) + 8));
  }

  torch::nn::Embedding table;
  torch::nn::Linear head;
};

// Parameters of two dtypes go into different buckets.
struct TwoDtypes : Net {
  TwoDtypes()
      : first(register_module("first", torch::nn::Linear(6, 4))),
        second(register_module("second", torch::nn::Linear(4, 3))) {
    second->to(at::kDouble);
  }
  at::Tensor forward(at::Tensor input) override {
    return second(torch::tanh(first(input)).to(at::kDouble)).to(at::kFloat);
  }

  torch::nn::Linear first, second;
};

std::shared_ptr<Net> host_net(const std::string& name) {
  if (name == "conv") return std::make_shared<ConvNet>();
  if (name == "tied") return std::make_shared<TiedNet>();
  if (name == "sparse") return std::make_shared<SparseNet>();
  if (name == "two_dtypes") return std::make_shared<TwoDtypes>();
  return std::make_shared<Mlp>();
}

std::shared_ptr<Net> make_net(const std::string& name) { return on_test_device(host_net(name)); }

StepData data_for(const std::string& net, int step, int64_t total_rows) {
  return net == "conv" ? data_of_step(step, total_rows, {2, 6, 6}) : data_of_step(step, total_rows);
}

// Each tensor once: an optimizer must not step a tied parameter twice.
std::vector<at::Tensor> distinct_parameters(const torch::nn::Module& module) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : module.parameters()) {
    bool known = false;
    for (const at::Tensor& other : result) known = known || other.is_same(parameter);
    if (!known) result.push_back(parameter);
  }
  return result;
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name,
                                                        std::vector<at::Tensor> parameters) {
  if (name == "adamw") {
    return std::make_unique<torch::optim::AdamW>(std::move(parameters),
                                                 torch::optim::AdamWOptions(0.01));
  }
  return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                             torch::optim::SGDOptions(0.1).momentum(0.9));
}

struct Recipe {
  std::string net = "mlp";
  std::string optimizer = "sgd";
  DdpOptions ddp{};
  bool set_to_none = true;  // in zero_grad()
};

// Plain torch on all rows.
std::vector<double> train_alone(const Recipe& recipe, int64_t total_rows) {
  torch::manual_seed(7);
  const auto net = make_net(recipe.net);
  const auto optimizer = make_optimizer(recipe.optimizer, distinct_parameters(*net));
  for (int step = 0; step < kSteps; ++step) {
    const StepData data = data_for(recipe.net, step, total_rows);
    optimizer->zero_grad();
    loss_of(net->forward(data.input), data.target).backward();
    optimizer->step();
  }
  return flat(distinct_parameters(*net));
}

std::vector<double> train_on_rank(const Recipe& recipe, const Rank& rank) {
  Accelerator accelerator(on_cpu(recipe.ddp));
  torch::manual_seed(7 + rank.rank);  // only rank 0 starts where the single process does
  const auto net = make_net(recipe.net);
  const auto adam = make_optimizer(recipe.optimizer, distinct_parameters(*net));
  auto [model, optimizer] = accelerator.prepare(net, *adam);
  for (int step = 0; step < kSteps; ++step) {
    const StepData data = data_for(recipe.net, step, kRows * rank.world_size);
    optimizer.zero_grad(recipe.set_to_none);
    const at::Tensor output = model(rows_of(data.input, rank.rank));
    accelerator.backward(loss_of(output, rows_of(data.target, rank.rank)));
    optimizer.step();
  }
  return flat(distinct_parameters(*net));
}

struct Equivalence : Ranks {
  void expect_same_parameters(int world_size, const Recipe& recipe) {
    const auto alone =
        run_collect(1, [&](const Rank&) { return train_alone(recipe, kRows * world_size); },
                    {.launched = false});
    const auto ranks =
        run_collect(world_size, [&](const Rank& rank) { return train_on_rank(recipe, rank); });
    ASSERT_FALSE(alone.at(0).empty());
    EXPECT_TRUE(near(ranks.at(0), alone.at(0)));
    // A GPU adds the rows of sparse gradients up in any order.
    const double rounding = tests_on_gpu() && recipe.net == "sparse" ? 1e-6 : 0;
    for (const std::vector<double>& parameters : ranks) {
      EXPECT_TRUE(near(parameters, ranks.at(0), rounding)) << "ranks differ from each other";
    }
  }
};

using Case = std::tuple<int, std::string, std::string>;
struct DdpEquivalence : Equivalence, testing::WithParamInterface<Case> {};
INSTANTIATE_TEST_SUITE_P(, DdpEquivalence,
                         testing::Combine(testing::Values(1, 2, 3),
                                          testing::Values("mlp", "conv", "tied", "two_dtypes"),
                                          testing::Values("sgd", "adamw")),
                         [](const testing::TestParamInfo<Case>& info) {
                           return std::get<1>(info.param) + "_" + std::get<2>(info.param) + "_on_" +
                                  std::to_string(std::get<0>(info.param));
                         });

TEST_P(DdpEquivalence, RanksTrainLikeOneProcessOnTheJoinedBatch) {
  const auto& [world_size, net, optimizer] = GetParam();
  expect_same_parameters(world_size, {.net = net, .optimizer = optimizer});
}

struct DdpOptionsTest : Equivalence {};

TEST_F(DdpOptionsTest, SparseGradientsAreAveraged) {
  if (wanted_test_device() == TestDevice::kGpuOverNccl) GTEST_SKIP() << kNoSparseSums;
  expect_same_parameters(2, {.net = "sparse"});
}

TEST_F(DdpOptionsTest, SparseGradientsAreRefusedOnAllRanksWhereNcclWouldHaveToAddThem) {
  if (wanted_test_device() != TestDevice::kGpuOverNccl) GTEST_SKIP() << "needs NCCL";
  run(2, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    EXPECT_THAT(usage_error([&] { (void)accelerator.prepare(make_net("sparse")); }),
                testing::AllOf(testing::HasSubstr("'table.weight' gets sparse gradients"),
                               testing::HasSubstr("CudaBackend::kGloo")));
  });
}

TEST_F(DdpOptionsTest, ManySmallBucketsGiveTheSameResult) {
  expect_same_parameters(2, {.net = "conv", .ddp = {.bucket_cap_mb = 0.0001}});
}

TEST_F(DdpOptionsTest, GradientsInsideTheBucketsGiveTheSameResult) {
  expect_same_parameters(2, {.optimizer = "adamw", .ddp = {.gradient_as_bucket_view = true}});
}

TEST_F(DdpOptionsTest, GradientsInsideTheBucketsCanBeZeroedInPlace) {
  expect_same_parameters(2, {.ddp = {.gradient_as_bucket_view = true}, .set_to_none = false});
}

TEST_F(DdpOptionsTest, AStaticGraphGivesTheSameResult) {
  expect_same_parameters(2, {.net = "tied", .ddp = {.static_graph = true}});
}

TEST_F(DdpOptionsTest, LookingForUnusedParametersWhereThereAreNoneGivesTheSameResult) {
  expect_same_parameters(3, {.ddp = {.find_unused_parameters = true}});
}

TEST_F(DdpOptionsTest, AllOptionsTogetherGiveTheSameResult) {
  expect_same_parameters(2, {.ddp = {.bucket_cap_mb = 0.0001,
                                     .find_unused_parameters = true,
                                     .gradient_as_bucket_view = true,
                                     .broadcast_buffers = false}});
}

TEST_F(DdpOptionsTest, ABucketWithoutSizeIsRefused) {
  run(2, [](const Rank& rank) {
    for (const double size : {0.0, -1.0, std::nan("")}) {
      try {
        Accelerator accelerator(on_cpu({.bucket_cap_mb = size}));
        ADD_FAILURE() << "bucket_cap_mb = " << size << " was taken";
      } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("bucket_cap_mb"));
        EXPECT_EQ(error.rank(), rank.rank);
      }
    }
  });
}

}  // namespace
}  // namespace accelerate::test

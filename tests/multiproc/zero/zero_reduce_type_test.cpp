// Gradients that travel in another type than they are kept in.
#include "multiproc/zero/written_bytes.h"
#include "multiproc/zero/zero_training.h"

namespace accelerate::test {
namespace {

struct ZeroReduceType : Ranks {};

AcceleratorOptions reduced_as(int stage, std::optional<at::ScalarType> type) {
  AcceleratorOptions options = on_cpu();
  options.strategy = ZeroOptions{.stage = stage, .reduce_dtype = type};
  return options;
}

std::shared_ptr<Mlp> mlp() {
  torch::manual_seed(4);
  return std::make_shared<Mlp>(200);
}

// Of the rows of one rank, without any other.
std::vector<at::Tensor> gradients_of(int rank) {
  const auto net = mlp();
  const StepData data = data_of_step(0, 2 * kRows);
  loss_of(net->forward(rows_of(data.input, rank)), rows_of(data.target, rank)).backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : net->parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

TEST_F(ZeroReduceType, RoundsWhatEachRankSendsAndTheirSumButNothingElse) {
  run(2, [](const Rank& rank) {
    for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
      std::vector<at::Tensor> expected = mlp()->parameters();
      const std::vector<at::Tensor> first = gradients_of(0), second = gradients_of(1);
      for (size_t i = 0; i < expected.size(); ++i) {
        const at::Tensor sum = first[i].to(type) + second[i].to(type);
        expected[i] = expected[i].detach() - (sum / 2).to(at::kFloat);
      }
      for (const int stage : {2, 3}) {
        Accelerator accelerator(reduced_as(stage, type));
        auto net = mlp();
        auto [model, optimizer] =
            accelerator.prepare(net, torch::optim::SGD(net->parameters(), 1.0));
        const StepData data = data_of_step(0, 2 * kRows);
        accelerator.backward(
            loss_of(model(rows_of(data.input, rank.rank)), rows_of(data.target, rank.rank)));
        optimizer.step();
        EXPECT_EQ(values_of(net->parameters()), flat(expected))
            << "stage " << stage << ", " << c10::toString(type);
      }
    }
  });
}

TEST_F(ZeroReduceType, OfFloat16HasRoomForMeansThatFit) {
  struct LongRow : torch::nn::Module {
    LongRow() : row(register_parameter("row", torch::ones({256}, test_device()))) {}
    at::Tensor forward(double factor) { return (row * factor).sum(); }
    at::Tensor row;
  };
  run(2, [](const Rank&) {
    for (const int stage : {2, 3}) {
      Accelerator accelerator(reduced_as(stage, at::kHalf));
      auto net = std::make_shared<LongRow>();
      auto [model, optimizer] =
          accelerator.prepare(net, torch::optim::SGD(net->parameters(), 1e-5));
      accelerator.backward(model(40000.0));
      optimizer.step();
      EXPECT_TRUE(near(values_of({net->row}), std::vector<double>(256, 0.6))) << "stage " << stage;
    }
  });
}

TEST_F(ZeroReduceType, InBfloat16SendsHalfOfTheBytes) {
  if (tests_on_gpu()) GTEST_SKIP() << "bytes are counted where they go through sockets";
  run(2, [](const Rank& rank) {
    const auto sent_by = [&](const AcceleratorOptions& options) {
      Accelerator accelerator(options);
      torch::manual_seed(4);
      torch::nn::Linear net(500, 500);
      auto model = accelerator.prepare(net);
      const at::Tensor loss = model(ones({2, 500}) * (1 + rank.rank)).square().sum();
      const int64_t before = written_bytes();
      EXPECT_GE(before, 0);
      accelerator.backward(loss);
      return written_bytes() - before;
    };
    constexpr int64_t kRest = 30'000;  // what ranks tell each other beside gradients
    const int64_t whole = sent_by(reduced_as(2, std::nullopt));
    EXPECT_GT(whole, 4 * 500 * 500 / 2);
    EXPECT_LT(sent_by(reduced_as(2, at::kBFloat16)), whole / 2 + kRest);
    EXPECT_GT(sent_by(reduced_as(2, at::kFloat)), whole - kRest);
  });
}

}  // namespace
}  // namespace accelerate::test

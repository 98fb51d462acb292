// Prepared objects as members and arguments whose types can be written down.
#include "multiproc/loading.h"
#include "multiproc/state_folder.h"
#include "multiproc/training.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;

struct LineImpl : torch::nn::Module {
  LineImpl() : fc(register_module("fc", torch::nn::Linear(2, 1))) {}
  at::Tensor forward(const at::Tensor& input) { return fc(input); }
  torch::nn::Linear fc;
};
TORCH_MODULE(Line);

static_assert(std::is_same_v<Prepared<Line>, PreparedModel<LineImpl>>);
static_assert(std::is_same_v<Prepared<LineImpl>, PreparedModel<LineImpl>>);
static_assert(std::is_same_v<Prepared<torch::optim::AdamW>, PreparedOptimizer>);
static_assert(std::is_same_v<Prepared<torch::optim::Optimizer>, PreparedOptimizer>);
static_assert(std::is_same_v<Prepared<Scheduler>, PreparedScheduler>);
static_assert(std::is_same_v<Prepared<torch::optim::StepLR>, PreparedScheduler>);
static_assert(std::is_same_v<Prepared<Loader<Sample>>, Loader<Sample>>);

TensorDataset eight_points() {
  const at::Tensor points = torch::arange(16.0).view({8, 2});
  return {points, points.sum(1, /*keepdim=*/true)};
}

// No template anywhere.
class Trainer {
 public:
  Trainer(Accelerator& accelerator, Line net, torch::optim::SGD& sgd, Loader<Sample> data)
      : accelerator_(accelerator),
        model_(accelerator.prepare(net)),
        optimizer_(accelerator.prepare(sgd)),
        data_(accelerator.prepare(data)) {}

  void pass() {
    for (auto& batch : data_) {
      rows_ += batch.info().valid;
      optimizer_.zero_grad();
      accelerator_.backward(loss_of(model_(batch.data), batch.target));
      optimizer_.step();
    }
  }
  int64_t rows() const { return rows_; }
  const Loader<Sample>& data() const { return data_; }

 private:
  Accelerator& accelerator_;
  Prepared<Line> model_;
  Prepared<torch::optim::SGD> optimizer_;
  Loader<Sample> data_;
  int64_t rows_ = 0;
};

struct NamedTypes : Ranks {
  StateFolder folder;
};

TEST_F(NamedTypes, TrainInAClassWithoutTemplates) {
  run(2, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    torch::manual_seed(3);
    Line net;
    torch::optim::SGD sgd(net->parameters(), 1e-3);
    Trainer trainer(accelerator, net, sgd, data_loader(eight_points(), {.batch_size = 2}));
    EXPECT_TRUE(trainer.data().is_sharded());
    EXPECT_EQ(trainer.data().size(), 2);
    const auto before = flat(net->parameters());
    trainer.pass();
    EXPECT_EQ(trainer.rows(), 4);
    EXPECT_NE(flat(net->parameters()), before);
    EXPECT_EQ(trainer.data().epoch(), 1);
  });
}

TEST_F(NamedTypes, ALoaderSharesItsPlaceWithTheOneItWasMadeOf) {
  run(2, [&](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    const auto known = accelerator.prepare(data_loader(Integers{12}, {.batch_size = 2}));
    Loader<UnlabelledBatch> erased = known;
    EXPECT_EQ(batches_of(erased), batches_of(known));
    EXPECT_EQ(known.epoch(), 2);
    erased.set_epoch(7);
    EXPECT_EQ(known.epoch(), 7);
    for (const auto& batch : erased) {
      if (batch.info().index == 0) break;
    }
    EXPECT_EQ(erased.state_dict(), known.state_dict());
    EXPECT_EQ(known.state_dict().position, 4);
    // 4..7 and 8..11 of the pass are left, two for each rank.
    const auto rest = batches_of(accelerator.skip_first_batches(erased, 1));
    ASSERT_EQ(rest.size(), 2u);
    EXPECT_THAT(rest[0], ElementsAre(4 + 2 * rank.rank, 5 + 2 * rank.rank));
  });
}

TEST_F(NamedTypes, ALoaderThatWasPreparedAsSuchIsSaved) {
  run(2, [&](const Rank&) {
    const auto batches = [&](bool resumes) {
      Accelerator accelerator(on_cpu());
      Loader<UnlabelledBatch> whole = data_loader(Integers{12}, {.batch_size = 2});
      const Loader<UnlabelledBatch> loader = accelerator.prepare(whole);
      if (resumes) {
        accelerator.load_state(folder / "state");
        return batches_of(loader);
      }
      std::vector<std::vector<int64_t>> rest;
      for (const auto& batch : loader) {
        if (batch.info().index == 0) {
          accelerator.save_state(folder / "state");
        } else {
          rest.push_back(values(batch.data));
        }
      }
      return rest;
    };
    const auto expected = batches(false);
    EXPECT_EQ(expected.size(), 2u);
    EXPECT_EQ(batches(true), expected);
  });
}

}  // namespace
}  // namespace accelerate::test

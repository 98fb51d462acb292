// from_pretrained() where rank 0 reads the files for all.
#include <accelerate/accelerate.h>
#include <accelerate/transformers/auto_model.h>
#include <gmock/gmock.h>

#include <chrono>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "support/ranks.h"
#include "transformers/checkpoints.h"
#include "transformers/encoder_models.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using transformers::AutoModel;
using transformers::AutoModelForCausalLM;
using transformers::AutoModelForSequenceClassification;
using transformers::PretrainedOptions;
using transformers::PretrainedReport;

AcceleratorOptions on_cpu() {
  return {.cpu = true,
          .process_group = {.timeout = std::chrono::seconds(50),
                            .rendezvous_timeout = std::chrono::seconds(50)}};
}

// The folder is there on rank 0; the others are given a name that does not exist.
std::string name_on(const Rank& rank, const fs::path& folder) {
  return rank.rank == 0 ? folder.string() : "nowhere/to-be-found";
}

void save_on_first(const Rank& rank, const fs::path& folder, ModelTask task,
                   const ModelConfig& config) {
  if (rank.rank != 0) return;
  transformers::save_pretrained(*random_model(task, config), folder, {.max_shard_size = "10KB"});
}

// Every rank has the bits of rank 0.
void expect_equal_everywhere(Accelerator& accelerator, const at::Tensor& tensor,
                             const std::string& what) {
  for (const at::Tensor& other : accelerator.communicator().all_gather(tensor.detach())) {
    EXPECT_TRUE(at::equal(other, tensor)) << what;
  }
}

class FromPretrainedOnRanks : public Ranks {
 protected:
  CheckpointFolder folder_{};

  void expect_the_model_of_rank_0(int world_size) {
    const fs::path folder = folder_.path() / std::to_string(world_size);
    run(world_size, [folder](const Rank& rank) {
      Accelerator accelerator(on_cpu());
      save_on_first(rank, folder, ModelTask::kBase, small_bert());
      at::manual_seed(7);
      PretrainedReport report;
      const auto model = AutoModelForSequenceClassification::from_pretrained(
          name_on(rank, folder), {.labels = {"a", "b", "c"},
                                  .broadcast = &accelerator.communicator(),
                                  .report = [&](const PretrainedReport& each) { report = each; }});
      EXPECT_THAT(report.missing_keys,
                  testing::ElementsAre("classifier.weight", "classifier.bias"));
      EXPECT_THAT(report.message, StartsWith("BertForSequenceClassification from "));
      EXPECT_EQ(model->config().labels().back(), "c");
      EXPECT_FALSE(model->is_training());
      for (const auto& item : get_state_dict(*model)) {
        expect_equal_everywhere(accelerator, item.value(), item.key());
      }
      EXPECT_GT(get_state_dict(*model)["classifier.weight"].abs().sum().item<double>(), 0);
      // What was drawn for the new head was drawn on all ranks.
      expect_equal_everywhere(accelerator, at::rand({4}), "the generator");
    });
  }
};

TEST_F(FromPretrainedOnRanks, TwoRanksHaveTheModelThatOneReads) { expect_the_model_of_rank_0(2); }

TEST_F(FromPretrainedOnRanks, ThreeRanksHaveTheModelThatOneReads) { expect_the_model_of_rank_0(3); }

TEST_F(FromPretrainedOnRanks, TypeAndUntiedWeightsTravelToo) {
  const fs::path folder = folder_.path();
  run(2, [folder](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    if (rank.rank == 0) {
      const auto model = random_model(ModelTask::kCausalLm, generating_gpt2());
      transformers::save_pretrained(*model, folder);
      NamedTensors tensors;
      for (const auto& item : load_state_dict(folder / "model.safetensors")) {
        tensors.insert(item.key(), item.value().clone());
      }
      tensors.insert("lm_head.weight", at::randn({40, 16}));
      save_safetensors(folder / "model.safetensors", tensors);
    }
    const auto model = AutoModelForCausalLM::from_pretrained(
        name_on(rank, folder),
        {.dtype = at::kBFloat16, .broadcast = &accelerator.communicator(), .report = [](auto&) {}});
    const ModelStateDict state = get_state_dict(*model);
    ASSERT_TRUE(state.contains("lm_head.weight"));
    EXPECT_FALSE(at::equal(state["lm_head.weight"], state["transformer.wte.weight"]));
    for (const auto& item : state) {
      EXPECT_EQ(item.value().scalar_type(), at::kBFloat16);
      expect_equal_everywhere(accelerator, item.value(), item.key());
    }
    EXPECT_EQ(model->generation_config().integer("max_length"), 30);
  });
}

TEST_F(FromPretrainedOnRanks, AnErrorOfTheReaderIsAnErrorOnAllAndTheGroupGoesOn) {
  const fs::path folder = folder_.path();
  run(3, [folder](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    const PretrainedOptions options{.broadcast = &accelerator.communicator()};
    EXPECT_THAT(error_from<DataError>([&] { AutoModel::from_pretrained(folder / "x", options); }),
                HasSubstr("is not a folder"));
    save_on_first(rank, folder, ModelTask::kBase, small_bert());
    if (rank.rank == 0) {
      for (const std::string& name : names_in(folder)) {
        if (name.ends_with(".safetensors")) fs::resize_file(folder / name, 100);
      }
    }
    EXPECT_THAT(
        error_from<CheckpointError>([&] { AutoModel::from_pretrained(folder.string(), options); }),
        HasSubstr(".safetensors"));
    accelerator.communicator().barrier();
  });
}

TEST_F(FromPretrainedOnRanks, AnErrorOfOneThatReceivesIsAnErrorOnAll) {
  const fs::path folder = folder_.path();
  run(3, [folder](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    save_on_first(rank, folder, ModelTask::kBase, small_bert());
    // It is made on all ranks but the last.
    transformers::register_architecture(
        {.model_type = "odd", .task = ModelTask::kBase, .name = "Odd", .make = [&](auto& config) {
           if (rank.rank == 2) throw DataError({.what = "not here"});
           return transformers::registered_architectures().front().make(config);
         }});
    const PretrainedOptions options{.config = {{"model_type", "odd"}},
                                    .broadcast = &accelerator.communicator()};
    EXPECT_EQ(error_from<DataError>([&] { AutoModel::from_pretrained(folder.string(), options); }),
              rank.rank == 2 ? "DataError: not here" : "[rank 2 of 3] DataError: not here");
    accelerator.communicator().barrier();
  });
}

TEST_F(FromPretrainedOnRanks, ReadingMayTakeLongerThanTheTimeout) {
  const fs::path folder = folder_.path();
  run(2, [folder](const Rank& rank) {
    AcceleratorOptions impatient = on_cpu();
    impatient.process_group.timeout = std::chrono::seconds(4);
    Accelerator accelerator(impatient);
    save_on_first(rank, folder, ModelTask::kBase, small_bert());
    for (const int slow : {0, 1}) {  // the one that reads, and one that receives
      const std::string type = "slow on " + std::to_string(slow);
      transformers::register_architecture(
          {.model_type = type, .task = ModelTask::kBase, .name = type, .make = [&](auto& config) {
             if (rank.rank == slow) std::this_thread::sleep_for(std::chrono::seconds(6));
             return transformers::registered_architectures().front().make(config);
           }});
      const auto model = AutoModel::from_pretrained(
          folder.string(),
          {.config = {{"model_type", type}}, .broadcast = &accelerator.communicator()});
      EXPECT_NE(model, nullptr);
    }
    accelerator.communicator().barrier();
  });
}

TEST_F(FromPretrainedOnRanks, RanksThatDisagreeAreToldBeforeAnythingIsSent) {
  const fs::path folder = folder_.path();
  run(2, [folder](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    save_on_first(rank, folder, ModelTask::kBase, small_bert());
    PretrainedOptions options{.broadcast = &accelerator.communicator(), .report = [](auto&) {}};
    PretrainedOptions other = options;
    other.num_labels = 3;
    PretrainedOptions elsewhere = options;
    elsewhere.device = c10::Device(c10::kXPU, 0);
    for (const PretrainedOptions& differing : {other, elsewhere}) {
      EXPECT_THAT(error_from<UsageError>([&] {
                    AutoModelForSequenceClassification::from_pretrained(
                        folder.string(), rank.rank == 1 ? differing : options);
                  }),
                  HasSubstr("rank 1 loads the model for another task, with other options or on"));
    }
    AutoModelForSequenceClassification::from_pretrained(folder.string(), options);
  });
}

// The most memory that this process has had, in bytes.
int64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kilobytes = 0;
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

TEST_F(FromPretrainedOnRanks, LoadingTakesTheMemoryOfTheModelAndOfOneFile) {
  const fs::path folder = folder_.path();
  constexpr int64_t kShard = 16 << 20;
  ModelConfig config;
  for (const auto& [key, value] : std::map<std::string, int64_t>{{"vocab_size", 8192},
                                                                 {"n_embd", 512},
                                                                 {"n_layer", 8},
                                                                 {"n_head", 8},
                                                                 {"n_positions", 64}}) {
    config.set(key, value);
  }
  config.set("model_type", "gpt2");
  const auto make = [&](const Rank& /*rank*/) {
    transformers::save_pretrained(*transformers::make_model(ModelTask::kCausalLm, config), folder,
                                  {.max_shard_size = kShard});
  };
  run(1, make);
  // In a process of its own, which has had no model before.
  run(1, [&](const Rank& /*rank*/) {
    at::ones({1 << 16}).sum();
    const int64_t before = peak_bytes();
    const auto model = AutoModelForCausalLM::from_pretrained(folder.string());
    const int64_t taken = peak_bytes() - before;
    int64_t bytes = 0;
    for (const at::Tensor& each : model->parameters()) {
      bytes += static_cast<int64_t>(each.nbytes());
    }
    EXPECT_GT(bytes, 100 << 20);
    EXPECT_GT(taken, bytes / 2);
    EXPECT_LT(taken, bytes + kShard);
  });
}

}  // namespace
}  // namespace accelerate::test

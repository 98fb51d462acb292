// Collators in prepared loaders, on one process and on several.
#include <gmock/gmock.h>

#include <numeric>

#include "accelerate/transformers/collator.h"
#include "multiproc/loading.h"
#include "transformers/tokenizer_folder.h"

namespace accelerate::test {
namespace {

using testing::ElementsAreArray;
using transformers::DataCollatorForLanguageModeling;
using transformers::DataCollatorWithPadding;
using transformers::TextDataset;
using transformers::TextLabel;

constexpr int64_t kTexts = 11;

// Text i has i + 1 words and the label i.
TextDataset counted_texts() {
  std::vector<std::string> texts;
  std::vector<TextLabel> labels;
  std::string text;
  for (int64_t i = 0; i < kTexts; ++i) {
    text += "one ";
    texts.push_back(text);
    labels.emplace_back(i);
  }
  return {words_tokenizer(), std::move(texts), std::move(labels)};
}

struct CollatorOn : Ranks, testing::WithParamInterface<std::tuple<bool, int>> {
  static bool dispatch() { return std::get<0>(GetParam()); }
  static int workers() { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, CollatorOn,
                         testing::Combine(testing::Bool(), testing::Values(0, 2)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) ? "Dispatch" : "Shard") +
                                  std::to_string(std::get<1>(info.param)) + "Workers";
                         });

TEST_P(CollatorOn, MetricsSeeEveryTextOnce) {
  run(2, [](const Rank&) {
    Accelerator accelerator = sharding_accelerator({.dispatch_batches = dispatch()});
    const auto loader = accelerator.prepare(
        data_loader(counted_texts(), {.batch_size = 2, .num_workers = workers()},
                    DataCollatorWithPadding(words_tokenizer())));
    std::vector<int64_t> seen;
    for (auto& batch : loader) {
      EXPECT_EQ(batch.input_ids.sizes(), batch.attention_mask.sizes());
      EXPECT_EQ(batch.input_ids.sizes(), batch.token_type_ids.sizes());
      EXPECT_EQ(batch.input_ids.size(0), batch.labels.size(0));
      const at::Tensor words = batch.attention_mask.sum(1) - 3;
      auto [counted, labels] = accelerator.gather_for_metrics(words, batch.labels);
      EXPECT_TRUE(counted.equal(labels));
      for (const int64_t label : values(labels)) seen.push_back(label);
    }
    std::vector<int64_t> all(kTexts);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_THAT(seen, ElementsAreArray(all));
  });
}

TEST_F(Ranks, MasksAreTheSameWithAnyNumberOfWorkersAndOthersInTheNextEpoch) {
  run(1, [](const Rank&) {
    const auto masks = [](int workers, int64_t epoch) {
      auto loader =
          data_loader(counted_texts(), {.batch_size = kTexts, .num_workers = workers, .seed = 3},
                      DataCollatorForLanguageModeling(words_tokenizer(), {.mlm_probability = 0.5}));
      loader.set_epoch(epoch);
      return loader.begin()->labels;
    };
    EXPECT_TRUE(masks(0, 0).equal(masks(2, 0)));
    EXPECT_FALSE(masks(0, 0).equal(masks(0, 1)));
  });
}

}  // namespace
}  // namespace accelerate::test

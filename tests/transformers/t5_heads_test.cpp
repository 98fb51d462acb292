// Classifiers on T5.
#include <accelerate/errors.h>
#include <gmock/gmock.h>

#include <string>

#include "transformers/checkpoints.h"
#include "transformers/decoder_models.h"
#include "transformers/saved_model.h"

namespace accelerate::test {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;
using transformers::load_pretrained;
using transformers::PretrainedReport;

constexpr auto kTexts = ModelTask::kSequenceClassification;
constexpr auto kTokens = ModelTask::kTokenClassification;

ModelConfig three_classes() {
  ModelConfig config = small_t5();
  config.set("num_labels", int64_t{3});
  return config;
}

// Words, the EOS and then padding.
at::Tensor text(int64_t words, int64_t padding, uint64_t seed) {
  return at::cat({random_texts(1, words, seed), at::ones({1, 1}, at::kLong),
                  at::zeros({1, padding}, at::kLong)},
                 1);
}

TEST(T5Heads, ATextIsClassifiedByItsLastEosWhateverFollowsIt) {
  const auto model = random_decoder(kTexts, three_classes());
  const at::Tensor one = text(6, 0, 1);
  const at::Tensor other = text(3, 3, 2);
  const at::Tensor both = at::cat({one, other});
  const at::Tensor logits =
      model->forward({.input_ids = both, .attention_mask = both.ne(0)}).logits;
  EXPECT_THAT(logits.sizes(), testing::ElementsAre(2, 3));
  const at::Tensor alone = model->forward({.input_ids = other.slice(1, 0, 4)}).logits;
  EXPECT_TRUE(at::allclose(logits.slice(0, 1), alone, 1e-4, 1e-5));
  const at::Tensor first = model->forward({.input_ids = one}).logits;
  EXPECT_TRUE(at::allclose(logits.slice(0, 0, 1), first, 1e-4, 1e-5));
}

TEST(T5Heads, LabelsMakeALossAndGradientsOfTheHead) {
  for (const auto task : {kTexts, kTokens}) {
    const auto model = random_decoder(task, three_classes());
    const at::Tensor ids = at::cat({text(5, 0, 1), text(5, 0, 2)});
    const at::Tensor labels =
        task == kTexts ? at::tensor({2, 0}) : at::randint(0, 3, ids.sizes(), at::kLong);
    const transformers::ModelOutput output =
        model->forward({.input_ids = ids, .labels = labels}, {.output_hidden_states = true});
    EXPECT_EQ(output.loss.dim(), 0);
    EXPECT_EQ(output.logits.dim(), task == kTexts ? 2 : 3);
    EXPECT_EQ(output.hidden_states.size(), 3U);
    output.loss.backward();
    for (const auto& item : model->named_parameters()) {
      EXPECT_TRUE(item.value().grad().defined()) << item.key();
    }
  }
}

TEST(T5Heads, TokensAreClassifiedByTheEncoderAlone) {
  const auto model = random_decoder(kTokens, three_classes());
  for (const auto& item : model->named_parameters()) {
    EXPECT_FALSE(item.key().starts_with("transformer.decoder")) << item.key();
  }
  const at::Tensor ids = random_texts(2, 6);
  EXPECT_THAT(model->forward({.input_ids = ids}).logits.sizes(), testing::ElementsAre(2, 6, 3));
}

TEST(T5Heads, ACheckpointOfT5HasAllButTheHead) {
  const Saved saved(ModelTask::kSeq2SeqLm, small_t5());
  for (const auto task : {kTexts, kTokens}) {
    PretrainedReport report;
    const auto model =
        load_pretrained(task, saved.folder.text(),
                        {.num_labels = 3, .report = [&](auto& given) { report = given; }});
    EXPECT_THAT(report.missing_keys, Each(StartsWith("classif")));
    EXPECT_EQ(report.missing_keys.size(), task == kTexts ? 4U : 2U);
    EXPECT_EQ(report.unexpected_keys.empty(), task == kTexts);
    EXPECT_TRUE(at::equal(get_state_dict(*model)["transformer.shared.weight"],
                          get_state_dict(*saved.model)["shared.weight"]));
  }
}

TEST(T5Heads, TablesOfTheirOwnAreKept) {
  const Saved saved(kTexts, three_classes());
  NamedTensors tensors = saved.tensors();
  const at::Tensor own = at::randn({40, 16});
  tensors.insert("transformer.decoder.embed_tokens.weight", own);
  saved.write(tensors);
  const auto model = load_pretrained(kTexts, saved.folder.text(), {.report = [](auto&) {}});
  EXPECT_TRUE(at::equal(get_state_dict(*model)["transformer.decoder.embed_tokens.weight"], own));
}

TEST(T5Heads, ATextWithoutItsEndIsRefused) {
  const auto model = random_decoder(kTexts, three_classes());
  const at::Tensor ids = random_texts(2, 6);
  EXPECT_THAT(error_from<UsageError>([&] { (void)model->forward({.input_ids = ids}); }),
              HasSubstr("a text has no token 1, the EOS, by whose place it is classified"));
  const ModelInputs other{.input_ids = text(5, 0, 1), .decoder_input_ids = random_texts(1, 3)};
  EXPECT_THAT(error_from<UsageError>([&] { (void)model->forward(other); }),
              HasSubstr("decoder_input_ids must have the shape of input_ids"));
  EXPECT_THAT(error_from<UsageError>([&] { (void)model->forward({}); }),
              HasSubstr("without input_ids"));
}

}  // namespace
}  // namespace accelerate::test

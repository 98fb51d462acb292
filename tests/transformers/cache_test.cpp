// Keys and values that are kept while a text goes on.
#include <ATen/ATen.h>
#include <accelerate/errors.h>
#include <accelerate/transformers/key_value_cache.h>
#include <gtest/gtest.h>

#include "transformers/decoder_models.h"

namespace accelerate::test {
namespace {

using transformers::ForwardOptions;
using transformers::KeyValueCache;

TEST(KeyValueCache, ReturnsAllThatWasAppendedInOrder) {
  KeyValueCache cache;
  EXPECT_EQ(cache.length(), 0);
  const at::Tensor keys = at::randn({2, 3, 9, 4});
  const at::Tensor values = at::randn({2, 3, 9, 5});
  int64_t end = 0;
  for (const int64_t count : {4, 1, 1, 3}) {
    for (const size_t layer : {0, 1}) {
      const auto [all_keys, all_values] =
          cache.append(layer, keys.slice(2, end, end + count), values.slice(2, end, end + count));
      EXPECT_TRUE(at::equal(all_keys, keys.slice(2, 0, end + count)));
      EXPECT_TRUE(at::equal(all_values, values.slice(2, 0, end + count)));
    }
    end += count;
    EXPECT_EQ(cache.length(), end);
  }
}

TEST(KeyValueCache, StaysWhereItIsWhileThereIsRoomAndKeepsAllWhenItGrows) {
  KeyValueCache cache(8);
  const at::Tensor keys = at::randn({1, 2, 40, 4});
  const auto append = [&](int64_t first, int64_t count) {
    const at::Tensor part = keys.slice(2, first, first + count);
    return cache.append(0, part, part).first;
  };
  const at::Tensor first = append(0, 3);
  const at::Tensor second = append(3, 5);
  EXPECT_EQ(second.data_ptr(), first.data_ptr());
  const at::Tensor third = append(8, 1);  // beyond 8: grows, to 16
  EXPECT_NE(third.data_ptr(), first.data_ptr());
  const at::Tensor fourth = append(9, 7);
  EXPECT_EQ(fourth.data_ptr(), third.data_ptr());
  EXPECT_TRUE(at::equal(append(16, 24), keys));  // more than twice as much
}

TEST(KeyValueCache, KeepsWhatTheEncoderSaidApart) {
  KeyValueCache cache;
  EXPECT_FALSE(cache.cross(1).first.defined());
  const at::Tensor key = at::randn({1, 2, 3, 4});
  const at::Tensor value = at::randn({1, 2, 3, 4});
  cache.set_cross(1, key, value);
  cache.append(1, key, value);
  EXPECT_TRUE(at::equal(cache.cross(1).first, key));
  EXPECT_TRUE(at::equal(cache.cross(1).second, value));
  EXPECT_FALSE(cache.cross(0).first.defined());
  EXPECT_EQ(cache.length(), 3);
}

TEST(KeyValueCache, RefusesTheKeysOfAnotherBatch) {
  KeyValueCache cache;
  cache.append(0, at::zeros({2, 2, 3, 4}), at::zeros({2, 2, 3, 4}));
  try {
    cache.append(0, at::zeros({3, 2, 1, 4}), at::zeros({3, 2, 1, 4}));
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_EQ(error.message(), "the keys and values of these texts do not fit those in the cache");
  }
  EXPECT_EQ(cache.length(), 3);
}

// Logits of `ids` given in parts of those sizes, with a cache.
at::Tensor in_parts(PretrainedModel& model, const at::Tensor& ids, const at::Tensor& mask,
                    const at::Tensor& positions, const std::vector<int64_t>& sizes) {
  KeyValueCache cache(4);
  std::vector<at::Tensor> logits;
  int64_t end = 0;
  for (const int64_t size : sizes) {
    ModelInputs inputs{.input_ids = ids.slice(1, end, end + size)};
    if (mask.defined()) inputs.attention_mask = mask.slice(1, 0, end + size);
    if (positions.defined()) inputs.position_ids = positions.slice(1, end, end + size);
    logits.push_back(model.forward(inputs, {.cache = &cache}).logits);
    end += size;
  }
  return at::cat(logits, 1);
}

TEST(KeyValueCache, LogitsAreThoseOfTheWholeTextHoweverItIsCut) {
  const at::NoGradGuard no_gradient;
  for (const std::string type : {"gpt2", "llama"}) {
    SCOPED_TRACE(type);
    const auto model = random_decoder(ModelTask::kCausalLm, small_model(type));
    const at::Tensor ids = random_texts(3, 12);
    const at::Tensor whole = model->forward({.input_ids = ids}).logits;
    for (const auto& sizes : std::vector<std::vector<int64_t>>{
             {12}, {5, 1, 1, 1, 1, 3}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {6, 6}}) {
      EXPECT_LT((in_parts(*model, ids, {}, {}, sizes) - whole).abs().max().item<double>(), 1e-5);
    }
  }
}

TEST(KeyValueCache, LogitsOfPaddedTextsAreThoseOfTheWholeTextToo) {
  const at::NoGradGuard no_gradient;
  for (const std::string type : {"gpt2", "llama"}) {
    SCOPED_TRACE(type);
    const auto model = random_decoder(ModelTask::kCausalLm, small_model(type));
    const ModelInputs inputs = left_padded({random_texts(1, 12), random_texts(1, 7)});
    const at::Tensor& mask = inputs.attention_mask;
    const at::Tensor positions = (mask.cumsum(1) - 1).clamp_min(0);
    const at::Tensor parts = in_parts(*model, inputs.input_ids, mask, positions, {8, 1, 2, 1});
    const at::Tensor whole =
        model
            ->forward(
                {.input_ids = inputs.input_ids, .attention_mask = mask, .position_ids = positions})
            .logits;
    const at::Tensor difference = (parts - whole).abs() * mask.unsqueeze(2);
    EXPECT_LT(difference.max().item<double>(), 1e-5);
  }
}

TEST(KeyValueCache, ADecoderWithAnEncoderSaysTheSamePieceByPiece) {
  const at::NoGradGuard no_gradient;
  const auto model = random_decoder(ModelTask::kSeq2SeqLm, small_t5());
  const at::Tensor ids = random_texts(2, 9);
  const at::Tensor mask = at::ones_like(ids);
  mask[1].slice(0, 5).fill_(0);
  const at::Tensor said = random_texts(2, 11, 5);
  const ModelOutput whole =
      model->forward({.input_ids = ids, .attention_mask = mask, .decoder_input_ids = said});
  KeyValueCache cache;
  ForwardOptions options{.cache = &cache,
                         .encoder_last_hidden_state = whole.encoder_last_hidden_state};
  int64_t end = 0;
  for (const int64_t size : {4, 1, 1, 5}) {
    const at::Tensor logits =
        model
            ->forward({.attention_mask = mask, .decoder_input_ids = said.slice(1, end, end + size)},
                      options)
            .logits;
    const at::Tensor wanted = whole.logits.slice(1, end, end + size);
    EXPECT_LT((logits - wanted).abs().max().item<double>(), 1e-5);
    end += size;
  }
}

}  // namespace
}  // namespace accelerate::test

// GPT-2, Llama and T5 beyond what recorded models show.
#include <ATen/ATen.h>
#include <accelerate/accelerate.h>
#include <accelerate/errors.h>
#include <gtest/gtest.h>

#include "transformers/decoder_models.h"

namespace accelerate::test {
namespace {

using transformers::make_model;

double largest(const at::Tensor& difference) { return difference.abs().max().item<double>(); }

at::Tensor gradient_of(PretrainedModel& model, const std::string& name) {
  return model.named_parameters()[name].grad();
}

TEST(Decoders, PaddingOnEitherSideChangesNothing) {
  const at::NoGradGuard no_gradient;
  for (const std::string type : {"gpt2", "llama"}) {
    SCOPED_TRACE(type);
    const auto model = random_decoder(ModelTask::kCausalLm, small_model(type));
    const at::Tensor text = random_texts(1, 6);
    const at::Tensor alone = model->forward({.input_ids = text}).logits;
    ModelInputs left = left_padded({random_texts(1, 9, 4), text});
    left.position_ids = (left.attention_mask.cumsum(1) - 1).clamp_min(0);
    EXPECT_LT(largest(model->forward(left).logits[1].slice(0, 3) - alone[0]), 1e-5);
    const at::Tensor ids = at::cat({text, at::zeros({1, 3}, at::kLong)}, 1);
    const at::Tensor mask = (ids != 0).to(at::kLong);
    const ModelOutput right = model->forward({.input_ids = ids, .attention_mask = mask});
    EXPECT_LT(largest(right.logits[0].slice(0, 0, 6) - alone[0]), 1e-5);
  }
}

TEST(Decoders, OnlyAsManyLogitsAsAreWanted) {
  const at::NoGradGuard no_gradient;
  for (const std::string type : {"gpt2", "llama"}) {
    const auto model = random_decoder(ModelTask::kCausalLm, small_model(type));
    const at::Tensor ids = random_texts(2, 6);
    const at::Tensor all = model->forward({.input_ids = ids}).logits;
    const at::Tensor last = model->forward({.input_ids = ids}, {.logits_to_keep = 2}).logits;
    ASSERT_EQ(last.sizes().vec(), (std::vector<int64_t>{2, 2, 40}));
    EXPECT_LT(largest(last - all.slice(1, 4)), 1e-6);
  }
}

TEST(Decoders, TheFusedLossAndItsGradientsAreThoseOfTheLogits) {
  for (const std::string type : {"gpt2", "llama", "t5"}) {
    SCOPED_TRACE(type);
    const auto task = type == "t5" ? ModelTask::kSeq2SeqLm : ModelTask::kCausalLm;
    const auto model = random_decoder(task, small_model(type));
    ModelInputs inputs{.input_ids = random_texts(2, 7), .labels = random_texts(2, 7, 2)};
    inputs.labels[1].slice(0, 4).fill_(-100);
    const ModelOutput plain = model->forward(inputs);
    plain.loss.backward();
    const auto gradients = [&] {
      std::vector<at::Tensor> all;
      for (const at::Tensor& parameter : model->parameters()) {
        all.push_back(parameter.grad().clone());
      }
      return all;
    };
    const auto wanted = gradients();
    model->zero_grad();
    const ModelOutput fused = model->forward(inputs, {.loss_only = true});
    EXPECT_FALSE(fused.logits.defined());
    EXPECT_NEAR(fused.loss.item<double>(), plain.loss.item<double>(), 1e-5);
    fused.loss.backward();
    const auto found = gradients();
    for (size_t i = 0; i < found.size(); ++i) EXPECT_LT(largest(found[i] - wanted[i]), 1e-4) << i;
  }
}

TEST(Decoders, ATiedHeadIsOneParameterAndBecomesTwoWhereFilesHaveTwo) {
  for (const std::string type : {"gpt2", "llama", "t5"}) {
    SCOPED_TRACE(type);
    ModelConfig config = small_model(type);
    config.set("tie_word_embeddings", true);
    const auto task = type == "t5" ? ModelTask::kSeq2SeqLm : ModelTask::kCausalLm;
    const auto model = random_decoder(task, config);
    const auto lists_head = [&] {
      for (const auto& [name, registered] : model->tied_weights()) {
        EXPECT_TRUE(model->named_parameters().contains(registered)) << registered;
        EXPECT_FALSE(model->named_parameters().contains(name)) << name;
        if (name == "lm_head.weight") return true;
      }
      return false;
    };
    EXPECT_TRUE(lists_head());
    EXPECT_FALSE(model->untie("score.weight"));
    EXPECT_TRUE(model->untie("lm_head.weight"));
    EXPECT_TRUE(model->named_parameters().contains("lm_head.weight"));
    EXPECT_FALSE(lists_head());
    EXPECT_FALSE(model->untie("lm_head.weight"));
    const at::NoGradGuard no_gradient;
    model->named_parameters()["lm_head.weight"].zero_();
    const ModelOutput output =
        model->forward({.input_ids = random_texts(1, 4), .decoder_input_ids = random_texts(1, 4)});
    EXPECT_EQ(largest(output.logits), 0);
  }
}

TEST(Decoders, T5MayHaveTablesOfItsOwnForEncoderAndDecoder) {
  const auto model = random_decoder(ModelTask::kSeq2SeqLm, small_t5());
  const ModelInputs inputs{.input_ids = random_texts(1, 4),
                           .decoder_input_ids = random_texts(1, 4)};
  const at::NoGradGuard no_gradient;
  const at::Tensor shared = model->named_parameters()["shared.weight"];
  const at::Tensor before = model->forward(inputs).logits;
  for (const std::string name : {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}) {
    const at::Tensor last = model->forward(inputs).logits;
    ASSERT_TRUE(model->untie(name));
    EXPECT_FALSE(model->untie(name));
    at::Tensor own = model->named_parameters()[name];
    own.copy_(shared);
    EXPECT_TRUE(at::equal(model->forward(inputs).logits, last));
    own.add_(1);
    EXPECT_GT(largest(model->forward(inputs).logits - last), 1e-3);
  }
  ASSERT_EQ(model->tied_weights().size(), 1U);
  EXPECT_EQ(model->tied_weights()[0].first, "lm_head.weight");
}

TEST(Decoders, AHeadThatIsNotTiedIsRegistered) {
  for (const std::string type : {"gpt2", "llama"}) {
    ModelConfig config = small_model(type);
    config.set("tie_word_embeddings", false);
    const auto model = random_decoder(ModelTask::kCausalLm, config);
    EXPECT_TRUE(model->named_parameters().contains("lm_head.weight"));
    EXPECT_TRUE(model->tied_weights().empty());
  }
}

TEST(Decoders, TextsAreClassifiedByTheirLastTokenThatIsNoPadding) {
  const at::NoGradGuard no_gradient;
  for (const std::string type : {"gpt2", "llama"}) {
    SCOPED_TRACE(type);
    ModelConfig config = small_model(type);
    config.set_num_labels(3);
    const auto model = random_decoder(ModelTask::kSequenceClassification, config);
    const at::Tensor text = random_texts(1, 5);
    const at::Tensor alone = model->forward({.input_ids = text}).logits;
    ASSERT_EQ(alone.sizes().vec(), (std::vector<int64_t>{1, 3}));
    const at::Tensor right = at::cat({text, at::zeros({1, 2}, at::kLong)}, 1);
    const at::Tensor both = at::cat({right, random_texts(1, 7, 9)});
    const ModelOutput output = model->forward({.input_ids = both,
                                               .attention_mask = (both != 0).to(at::kLong),
                                               .labels = at::tensor({2, 0}, at::kLong)});
    EXPECT_LT(largest(output.logits[0] - alone[0]), 1e-5);
    EXPECT_GT(output.loss.item<double>(), 0);
  }
}

TEST(Decoders, SeveralTextsWithoutAPadTokenCannotBeClassified) {
  ModelConfig config = small_gpt2();
  config.set("pad_token_id", nullptr);
  const auto model = random_decoder(ModelTask::kSequenceClassification, config);
  EXPECT_EQ(model->forward({.input_ids = random_texts(1, 5)}).logits.size(0), 1);
  try {
    (void)model->forward({.input_ids = random_texts(2, 5)});
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_EQ(error.message(),
              "the last token of each of 2 texts cannot be found: the model has no pad token");
  }
}

TEST(Decoders, TokensAreClassifiedOneByOne) {
  for (const std::string type : {"gpt2", "llama"}) {
    ModelConfig config = small_model(type);
    config.set_num_labels(5);
    const auto model = random_decoder(ModelTask::kTokenClassification, config);
    const ModelOutput output =
        model->forward({.input_ids = random_texts(2, 5), .labels = at::ones({2, 5}, at::kLong)});
    EXPECT_EQ(output.logits.sizes().vec(), (std::vector<int64_t>{2, 5, 5}));
    EXPECT_TRUE(output.loss.defined());
  }
}

TEST(Decoders, TheBodyAloneHasTheHiddenStatesOfEachLayer) {
  const at::NoGradGuard no_gradient;
  for (const std::string type : {"gpt2", "llama"}) {
    const auto model = random_decoder(ModelTask::kBase, small_model(type));
    const ModelOutput output =
        model->forward({.input_ids = random_texts(2, 5)}, {.output_hidden_states = true});
    EXPECT_FALSE(output.logits.defined());
    ASSERT_EQ(output.hidden_states.size(), 3U);
    EXPECT_TRUE(at::equal(output.hidden_states.back(), output.last_hidden_state));
  }
}

TEST(Decoders, BranchesOfGpt2BeginSmaller) {
  ModelConfig config = small_gpt2();
  config.set("n_embd", 256);
  config.set("n_layer", 8);
  config.set("initializer_range", 0.02);
  at::manual_seed(1);
  const auto model = make_model(ModelTask::kCausalLm, config);
  const auto parameters = model->named_parameters();
  const auto deviation = [&](const std::string& name) {
    return parameters["transformer.h.3." + name].std().item<double>();
  };
  EXPECT_NEAR(deviation("attn.c_attn.weight"), 0.02, 5e-4);
  EXPECT_NEAR(deviation("mlp.c_fc.weight"), 0.02, 5e-4);
  EXPECT_NEAR(deviation("attn.c_proj.weight"), 0.005, 2e-4);
  EXPECT_NEAR(deviation("mlp.c_proj.weight"), 0.005, 2e-4);
  EXPECT_EQ(largest(parameters["transformer.h.3.ln_1.weight"] - 1), 0);
}

TEST(Decoders, PaddingHasNoGradientInLlamasTable) {
  const auto model = random_decoder(ModelTask::kBase, small_llama());
  at::Tensor ids = random_texts(1, 5);
  ids[0][4] = 0;
  model->forward({.input_ids = ids}).last_hidden_state.square().sum().backward();
  const at::Tensor gradient = gradient_of(*model, "embed_tokens.weight");
  EXPECT_EQ(largest(gradient[0]), 0);
  EXPECT_GT(largest(gradient), 0);
}

TEST(Decoders, Gpt2LearnsWithFlatParametersInBfloat16) {
  ModelConfig config = small_gpt2();
  for (const char* key : {"embd_pdrop", "attn_pdrop", "resid_pdrop"}) config.set(key, 0.0);
  config.set("initializer_range", 0.05);
  const auto model = random_decoder(ModelTask::kCausalLm, config);
  model->train();
  Accelerator accelerator({.cpu = true, .flat = FlatOptions{}});
  torch::optim::AdamW adamw(model->parameters(), 1e-2);
  auto [prepared, optimizer] = accelerator.prepare(model, adamw);
  const at::Tensor ids = random_texts(4, 16);
  std::vector<double> losses;
  for (int step = 0; step < 30; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss =
        prepared(ModelInputs{.input_ids = ids, .labels = ids}, ForwardOptions{.loss_only = true})
            .loss;
    accelerator.backward(loss);
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  EXPECT_EQ(model->parameters()[0].scalar_type(), at::kBFloat16);
  EXPECT_LT(losses.back(), 0.5 * losses.front());
}

TEST(Decoders, DropoutIsAtWorkInTrainingAlone) {
  for (const std::string type : {"gpt2", "t5"}) {
    const auto task = type == "t5" ? ModelTask::kSeq2SeqLm : ModelTask::kCausalLm;
    const auto model = random_decoder(task, type == "t5" ? small_t5() : small_gpt2());
    const at::NoGradGuard no_gradient;
    const ModelInputs inputs{.input_ids = random_texts(2, 8),
                             .decoder_input_ids = random_texts(2, 8)};
    const at::Tensor first = model->forward(inputs).logits;
    EXPECT_TRUE(at::equal(first, model->forward(inputs).logits));
    model->train();
    EXPECT_GT(largest(model->forward(inputs).logits - model->forward(inputs).logits), 1e-3);
  }
}

TEST(Decoders, T5InFloat16KeepsItsLastMatrixInFloat32) {
  const at::NoGradGuard no_gradient;
  const auto model = random_decoder(ModelTask::kSeq2SeqLm, small_t5());
  const ModelInputs inputs{.input_ids = random_texts(2, 8),
                           .decoder_input_ids = random_texts(2, 8)};
  const at::Tensor exact = model->forward(inputs).logits;
  EXPECT_EQ(model->keep_in_fp32_modules(), std::vector<std::string>{"wo"});
  for (const auto& parameter : model->named_parameters()) {
    if (!parameter.key().ends_with("wo.weight")) {
      parameter.value().set_data(parameter.value().to(at::kHalf));
    }
  }
  const at::Tensor half = model->forward(inputs).logits;
  EXPECT_LT(largest(half.to(at::kFloat) - exact), 0.02 * largest(exact));
}

TEST(Decoders, ATextLongerThanTheTableOfPositionsIsRefused) {
  const auto model = random_decoder(ModelTask::kCausalLm, small_gpt2());
  try {
    (void)model->forward({.input_ids = random_texts(1, 33)});
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_EQ(error.message(), "texts of 33 positions for GPT2Model, which has 32");
  }
}

TEST(Decoders, T5AsksForWhatItsDecoderIsToSay) {
  const auto model = random_decoder(ModelTask::kSeq2SeqLm, small_t5());
  EXPECT_THROW((void)model->forward({.input_ids = random_texts(1, 3)}), UsageError);
}

TEST(Decoders, InputsThatDoNotFitAreRefused) {
  const at::Tensor ids = random_texts(2, 5);
  const std::vector<std::pair<ModelInputs, std::string>> wrong{
      {{}, " was called without input_ids"},
      {{.input_ids = ids[0]}, "input_ids has the shape [5], not [batch, positions]"},
      {{.input_ids = ids.slice(1, 0, 0)}, "input_ids has no tokens"},
      {{.input_ids = ids, .attention_mask = at::ones({1, 5}, at::kLong)},
       "attention_mask has the shape [1, 5], input_ids has [2, 5]"},
      {{.input_ids = ids, .position_ids = at::zeros({2, 7}, at::kLong)},
       "position_ids has the shape [2, 7], input_ids has [2, 5]"},
      {{.input_ids = ids, .token_type_ids = at::zeros({2, 1}, at::kLong)},
       "token_type_ids has the shape [2, 1], input_ids has [2, 5]"},
      {{.input_ids = ids, .labels = at::zeros({2, 4}, at::kLong)},
       "labels must have the shape of input_ids"}};
  for (const std::string type : {"gpt2", "llama"}) {
    const auto model = random_decoder(ModelTask::kCausalLm, small_model(type));
    for (const auto& [inputs, message] : wrong) {
      try {
        (void)model->forward(inputs);
        ADD_FAILURE() << message;
      } catch (const UsageError& error) {
        EXPECT_TRUE(error.message().ends_with(message)) << error.message();
      }
    }
    EXPECT_THROW((void)model->forward({.input_ids = ids, .labels = ids}, {.logits_to_keep = 1}),
                 UsageError);
  }
  const auto gpt2 = random_decoder(ModelTask::kCausalLm, small_gpt2());
  EXPECT_THROW((void)gpt2->forward({.input_ids = ids, .position_ids = at::full({2, 5}, 32)}),
               UsageError);
  const auto t5 = random_decoder(ModelTask::kSeq2SeqLm, small_t5());
  EXPECT_THROW((void)t5->forward({.decoder_input_ids = ids}), UsageError);
  EXPECT_THROW((void)t5->forward({.input_ids = ids, .decoder_input_ids = ids[0]}), UsageError);
  const at::Tensor one = ids.slice(0, 0, 1);
  EXPECT_THROW((void)t5->forward({.input_ids = ids, .decoder_input_ids = one}), UsageError);
  EXPECT_THROW((void)t5->forward({.input_ids = ids, .labels = ids, .decoder_input_ids = one}),
               UsageError);
}

void expect_refused(ModelConfig config, const char* key, transformers::ConfigValue value,
                    const std::string& message) {
  SCOPED_TRACE(key);
  config.set(key, std::move(value));
  try {
    (void)make_model(ModelTask::kBase, config);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const DataError& error) {
    EXPECT_EQ(error.message(), message);
  }
}

TEST(Decoders, ConfigurationsThatMakeNoSenseAreRefusedByName) {
  expect_refused(small_gpt2(), "n_head", int64_t{5},
                 "'n_embd' in config.json is 16, which 5 heads do not divide");
  expect_refused(small_gpt2(), "add_cross_attention", true,
                 "'add_cross_attention' in config.json is true: GPT-2 as the decoder of another "
                 "model is not supported");
  expect_refused(small_llama(), "num_key_value_heads", int64_t{3},
                 "'num_key_value_heads' in config.json is 3, which does not divide the 4 attention "
                 "heads");
  expect_refused(small_llama(), "num_attention_heads", int64_t{6},
                 "'hidden_size' in config.json is 16, which 6 heads do not divide");
  expect_refused(small_llama(), "pad_token_id", int64_t{40},
                 "'pad_token_id' in config.json is 40, which is not a token of the vocabulary");
  expect_refused(small_gpt2(), "layer_norm_epsilon", -1.0,
                 "\"layer_norm_epsilon\" is -1.0; it should be a number that is 0 or more");
  expect_refused(small_t5(), "relative_attention_num_buckets", int64_t{3},
                 "'relative_attention_num_buckets' in config.json must be at least 4, and half of "
                 "it below 'relative_attention_max_distance'");
}

}  // namespace
}  // namespace accelerate::test

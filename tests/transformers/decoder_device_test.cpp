// Decoders on the device named by ACCELERATE_TEST_DEVICE, beside the CPU; without one, the CPU.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <accelerate/accelerate.h>
#include <accelerate/transformers/generation.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/test_device.h"
#include "transformers/decoder_models.h"

namespace accelerate::test {
namespace {

// Wide enough for the fused operations to use kernels of their own.
ModelConfig wide(const std::string& type) {
  ModelConfig config = small_model(type);
  if (type == "gpt2") {
    config.set("n_embd", int64_t{64});
    for (const char* key : {"embd_pdrop", "attn_pdrop", "resid_pdrop"}) config.set(key, 0.0);
  } else if (type == "llama") {
    config.set("hidden_size", int64_t{64});
  } else {
    config.set("d_model", int64_t{64});
    config.set("dropout_rate", 0.0);
  }
  config.set("initializer_range", 0.1);
  return config;
}

std::shared_ptr<PretrainedModel> wide_model(const std::string& type) {
  const auto task = type == "t5" ? ModelTask::kSeq2SeqLm : ModelTask::kCausalLm;
  return random_decoder(task, wide(type));
}

struct DecoderDeviceTest : testing::Test {
  void SetUp() override {
    test_device();  // opens the CUDA part where the tests are for a GPU
  }
};

ModelInputs on_device(ModelInputs inputs) {
  for (at::Tensor* tensor : {&inputs.input_ids, &inputs.attention_mask, &inputs.labels}) {
    if (tensor->defined()) *tensor = tensor->to(test_device());
  }
  return inputs;
}

ModelInputs labelled_texts(bool padded) {
  ModelInputs inputs = padded ? left_padded({random_texts(1, 16), random_texts(1, 9, 2)})
                              : ModelInputs{.input_ids = random_texts(2, 16)};
  inputs.labels = random_texts(2, 16, 3);
  return inputs;
}

double relative_error(const at::Tensor& found, const at::Tensor& exact) {
  const at::Tensor wanted = exact.to(at::kDouble);
  return ((found.cpu().to(at::kDouble) - wanted).norm() / wanted.norm()).item<double>();
}

TEST_F(DecoderDeviceTest, LossAndGradientsAreThoseOfTheCpu) {
  for (const std::string type : {"gpt2", "llama", "t5"}) {
    for (const bool padded : {false, true}) {
      SCOPED_TRACE(type + (padded ? " padded" : ""));
      const ModelInputs inputs = labelled_texts(padded);
      const auto model = wide_model(type);
      const auto other = wide_model(type);
      other->to(test_device());
      for (const bool loss_only : {false, true}) {
        model->zero_grad();
        other->zero_grad();
        const at::Tensor wanted = model->forward(inputs).loss;
        wanted.backward();
        const at::Tensor found = other->forward(on_device(inputs), {.loss_only = loss_only}).loss;
        found.backward();
        EXPECT_NEAR(found.item<double>(), wanted.item<double>(), 1e-3);
        for (const auto& parameter : model->named_parameters()) {
          const at::Tensor gradient = other->named_parameters()[parameter.key()].grad();
          EXPECT_LT(relative_error(gradient, parameter.value().grad()), 5e-3) << parameter.key();
        }
      }
    }
  }
}

TEST_F(DecoderDeviceTest, Gpt2InBfloat16WithFlatParametersHasTheGradientsOfFloat32) {
  const ModelInputs inputs{.input_ids = random_texts(2, 32), .labels = random_texts(2, 32, 3)};
  const auto model = wide_model("gpt2");
  const at::Tensor wanted = model->forward(inputs).loss;
  wanted.backward();
  const auto other = wide_model("gpt2");
  Accelerator accelerator({.cpu = test_device().is_cpu(), .flat = FlatOptions{}});
  auto prepared = accelerator.prepare(other);
  const at::Tensor found = prepared(on_device(inputs), ForwardOptions{.loss_only = true}).loss;
  accelerator.backward(found);
  EXPECT_NEAR(found.item<double>(), wanted.item<double>(), 0.02 * wanted.item<double>());
  for (const auto& parameter : model->named_parameters()) {
    const at::Tensor gradient = other->named_parameters()[parameter.key()].grad();
    EXPECT_EQ(gradient.scalar_type(), at::kFloat) << parameter.key();
    EXPECT_LT(relative_error(gradient, parameter.value().grad()), 0.1) << parameter.key();
  }
}

// Half precision in the operators that take it, while this lives.
class Autocast {
 public:
  Autocast() { at::autocast::set_autocast_enabled(test_device().type(), true); }
  ~Autocast() {
    at::autocast::set_autocast_enabled(test_device().type(), false);
    at::autocast::clear_cache();
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
};

TEST_F(DecoderDeviceTest, UnderAutocastTheLossIsNearlyThatOfFloat32) {
  at::autocast::set_autocast_dtype(test_device().type(), at::kBFloat16);
  for (const std::string type : {"gpt2", "llama", "t5"}) {
    for (const bool padded : {false, true}) {
      SCOPED_TRACE(type + (padded ? " padded" : ""));
      const ModelInputs inputs = labelled_texts(padded);
      const auto model = wide_model(type);
      const at::Tensor wanted = model->forward(inputs).loss;
      wanted.backward();
      const auto other = wide_model(type);
      other->to(test_device());
      at::Tensor found;
      {
        const Autocast autocast;
        found = other->forward(on_device(inputs)).loss;
      }
      found.backward();
      EXPECT_NEAR(found.item<double>(), wanted.item<double>(), 0.02 * wanted.item<double>());
      for (const auto& parameter : model->named_parameters()) {
        const at::Tensor gradient = other->named_parameters()[parameter.key()].grad();
        EXPECT_EQ(gradient.scalar_type(), at::kFloat) << parameter.key();
        EXPECT_LT(relative_error(gradient, parameter.value().grad()), 0.15) << parameter.key();
      }
    }
  }
}

// The most likely token after each text, `count` times, without a cache and on the CPU: what
// generate() has to find whichever way it goes.
at::Tensor texts_by_hand(PretrainedModel& model, const ModelInputs& prompts, int64_t count) {
  const at::NoGradGuard no_gradient;
  const bool is_encoder_decoder = model.is_encoder_decoder();
  const int64_t rows = prompts.input_ids.size(0);
  at::Tensor texts = is_encoder_decoder ? at::zeros({rows, 1}, at::kLong) : prompts.input_ids;
  at::Tensor mask = prompts.attention_mask;
  for (int64_t i = 0; i < count; ++i) {
    ModelInputs inputs = prompts;
    if (is_encoder_decoder) {
      inputs.decoder_input_ids = texts;
    } else {
      inputs.input_ids = texts;
      inputs.attention_mask = mask;
      inputs.position_ids = (mask.cumsum(1) - 1).clamp_min(0);
    }
    at::Tensor scores = model.forward(inputs).logits.select(1, texts.size(1) - 1).clone();
    scores.select(1, 1).fill_(-std::numeric_limits<float>::infinity());  // the end of a text
    texts = at::cat({texts, scores.argmax(1, true)}, 1);
    mask = at::cat({mask, at::ones({rows, 1}, at::kLong)}, 1);
  }
  return texts;
}

TEST_F(DecoderDeviceTest, TextsAreThoseOfTheCpu) {
  for (const std::string type : {"gpt2", "llama", "t5"}) {
    SCOPED_TRACE(type);
    const ModelInputs prompts = left_padded({random_texts(1, 8), random_texts(1, 5, 2)});
    const transformers::GenerationOptions options{
        .max_new_tokens = 10, .min_new_tokens = 10, .decoder_start_token_id = 0};
    const auto model = wide_model(type);
    const at::Tensor wanted = texts_by_hand(*model, prompts, options.max_new_tokens.value());
    model->to(test_device());
    const at::Tensor found = generate(*model, on_device(prompts), options).cpu();
    EXPECT_TRUE(at::equal(found, wanted)) << found << "\nwanted " << wanted;
  }
}

}  // namespace
}  // namespace accelerate::test

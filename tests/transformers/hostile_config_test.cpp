// config.json as somebody who wishes us ill writes it: an error, never a crash, a hang or memory
// without end.
#include <accelerate/safetensors.h>
#include <accelerate/transformers/auto_model.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "transformers/checkpoints.h"

namespace accelerate::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using transformers::make_model;

class HostileConfig : public testing::Test {
 protected:
  // Thousands of small models: threads that wait for each other would take most of the time.
  HostileConfig() { at::set_num_threads(1); }
  ~HostileConfig() override { at::set_num_threads(threads_); }

 private:
  int threads_ = at::get_num_threads();
};

struct Case {
  ModelTask task;
  ModelConfig config;
};

// With all that files of it can say.
ModelConfig full_llama() {
  ModelConfig config = small_llama();
  config.set("tie_word_embeddings", false);
  config.set("rope_parameters.rope_type", "default");
  config.set("rope_parameters.rope_theta", 10000.0);
  return config;
}

std::vector<Case> cases() {
  return {{ModelTask::kSequenceClassification, small_bert()},
          {ModelTask::kSequenceClassification, small_bert("roberta")},
          {ModelTask::kSequenceClassification, small_distilbert()},
          {ModelTask::kCausalLm, small_gpt2()},
          {ModelTask::kCausalLm, full_llama()},
          {ModelTask::kSeq2SeqLm, small_t5()}};
}

std::vector<json> bad_values() {
  return {-1,
          0,
          1,
          3,
          2147483647,
          2147483648,
          9223372036854775807,
          1.5,
          -1e300,
          1e300,
          "",
          "nan",
          json::array(),
          true,
          json::object(),
          json::array({1, "x"}),
          {{"rope_type", "x"}},
          std::string(100000, 'x')};
}

at::Tensor labels_for(ModelTask task, const at::Tensor& ids) {
  return task == ModelTask::kSequenceClassification ? at::ones({2}, at::kLong) : ids;
}

// Loads; an error of the library is well, any other exception is not. What could be loaded can be
// called: a wrong setting may show there, as an error of the library too.
void load_or_refuse(ModelTask task, const std::string& folder, const std::string& what) {
  std::shared_ptr<PretrainedModel> model;
  try {
    model = transformers::load_pretrained(task, folder, {.report = [](auto&) {}});
  } catch (const Error&) {
    return;
  } catch (const std::exception& error) {
    ADD_FAILURE() << what << ": " << error.what();
    return;
  }
  try {
    const at::NoGradGuard no_gradient;
    const at::Tensor ids = at::arange(3, 9).view({2, 3});
    (void)model->forward({.input_ids = ids, .labels = labels_for(task, ids)});
  } catch (const Error&) {
    return;
  } catch (const std::exception& error) {
    ADD_FAILURE() << what << ", as it is called: " << std::string(error.what()).substr(0, 300);
  }
}

// Then the model has something to initialise.
void drop_a_matrix(const fs::path& weights) {
  NamedTensors rest;
  bool dropped = false;
  for (const auto& item : load_state_dict(weights)) {
    if (!dropped && item.value().dim() == 2) {
      dropped = true;
    } else {
      rest.insert(item.key(), item.value().clone());
    }
  }
  save_safetensors(weights, rest);
}

long peak_kilobytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST_F(HostileConfig, AnyValueOfAnyKeyIsTakenOrRefused) {
  for (const Case& each : cases()) {
    const CheckpointFolder folder;
    transformers::save_pretrained(*random_model(each.task, each.config), folder.path());
    const json good = json::parse(read_file(folder.path() / "config.json"));
    const long before = peak_kilobytes();
    for (const auto& [key, value] : good.items()) {
      for (const json& bad : bad_values()) {
        json hostile = good;
        hostile[key] = bad;
        write_file(folder.path() / "config.json", hostile.dump());
        load_or_refuse(each.task, folder.text(), key + " = " + bad.dump().substr(0, 40));
      }
    }
    EXPECT_LT(peak_kilobytes() - before, 300 * 1024) << each.config.model_type();
  }
}

TEST_F(HostileConfig, SettingsThatFilesNeedNotHaveAreTakenOrRefused) {
  for (const Case& each : cases()) {
    const CheckpointFolder folder;
    transformers::save_pretrained(*random_model(each.task, each.config), folder.path());
    drop_a_matrix(folder.path() / "model.safetensors");
    const json good = json::parse(read_file(folder.path() / "config.json"));
    for (const char* key : {"num_labels",
                            "id2label",
                            "pad_token_id",
                            "head_dim",
                            "num_key_value_heads",
                            "dtype",
                            "rope_scaling",
                            "rope_parameters",
                            "rope_theta",
                            "layer_norm_eps",
                            "hidden_act",
                            "n_inner",
                            "d_kv",
                            "num_decoder_layers",
                            "relative_attention_num_buckets",
                            "relative_attention_max_distance",
                            "feed_forward_proj",
                            "is_decoder",
                            "problem_type",
                            "tie_word_embeddings",
                            "add_cross_attention",
                            "classifier_dropout",
                            "eos_token_id",
                            "decoder_start_token_id",
                            "initializer_range",
                            "initializer_factor",
                            "position_embedding_type",
                            "partial_rotary_factor",
                            "attention_bias",
                            "mlp_bias",
                            "quantization_config"}) {
      for (const json& bad : bad_values()) {
        json hostile = good;
        hostile[key] = bad;
        write_file(folder.path() / "config.json", hostile.dump());
        load_or_refuse(each.task, folder.text(),
                       std::string(key) + " = " + bad.dump().substr(0, 40));
      }
    }
  }
}

TEST_F(HostileConfig, AModelThatTheFilesCannotFillIsRefusedBeforeItIsMade) {
  const CheckpointFolder folder;
  transformers::save_pretrained(*random_model(ModelTask::kBase, small_bert()), folder.path());
  const auto said = [&](const char* key, int64_t value) {
    ModelConfig config = small_bert();
    config.set(key, value);
    write_file(folder.path() / "config.json", config.to_json());
    return error_from<DataError>([&] { transformers::AutoModel::from_pretrained(folder.text()); });
  };
  EXPECT_THAT(said("vocab_size", 2147483647),
              HasSubstr("the configuration asks for a model of more than "));
  EXPECT_THAT(said("vocab_size", 2147483647), HasSubstr(" parameters, the files hold 39 tensors"));
  EXPECT_THAT(said("num_hidden_layers", 2147483647),
              HasSubstr("more than 4252 tensors, the files hold 39 tensors"));
  EXPECT_THAT(said("intermediate_size", 2147483647),
              HasSubstr("check the sizes and numbers of layers in it"));
}

TEST_F(HostileConfig, ANewModelThatNoMemoryHoldsIsRefused) {
  ModelConfig config = small_bert();
  config.set("vocab_size", int64_t{2147483647});
  config.set("hidden_size", int64_t{2147483644});
  EXPECT_THAT(error_from<DataError>([&] { make_model(ModelTask::kBase, config); }),
              HasSubstr("the configuration asks for a model of more than "));
  config = small_bert();
  config.set("vocab_size", int64_t{2147483647});
  config.set("hidden_size", int64_t{4096});
  EXPECT_THAT(error_from<DataError>([&] { make_model(ModelTask::kBase, config); }),
              HasSubstr("bytes of memory"));
}

TEST_F(HostileConfig, ANewModelOfEndlessThinLayersIsRefused) {
  ModelConfig config = small_bert();
  for (const char* key :
       {"vocab_size", "hidden_size", "num_attention_heads", "intermediate_size"}) {
    config.set(key, int64_t{1});
  }
  config.set("num_hidden_layers", int64_t{2147483647});
  EXPECT_THAT(error_from<DataError>([&] { make_model(ModelTask::kBase, config); }),
              HasSubstr("more than 131072 tensors"));
}

TEST_F(HostileConfig, RandomValuesOfANegativeWidthAreRefused) {
  for (Case& each : cases()) {
    for (const char* key : {"initializer_range", "initializer_factor"}) {
      each.config.set(key, -1.0);
    }
    EXPECT_THAT(error_from<DataError>([&] { make_model(each.task, each.config); }),
                HasSubstr("is -1.0; it should be a number that is 0 or more"))
        << each.config.model_type();
  }
}

TEST_F(HostileConfig, QuantisedWeightsAreRefusedByName) {
  const CheckpointFolder folder;
  transformers::save_pretrained(*random_model(ModelTask::kBase, small_bert()), folder.path());
  ModelConfig config = ModelConfig::from_file(folder.path());
  config.set("quantization_config.quant_method", "bitsandbytes");
  write_file(folder.path() / "config.json", config.to_json());
  EXPECT_THAT(
      error_from<DataError>([&] { transformers::AutoModel::from_pretrained(folder.text()); }),
      HasSubstr("the weights are quantised, which cannot be loaded here"));
}

}  // namespace
}  // namespace accelerate::test

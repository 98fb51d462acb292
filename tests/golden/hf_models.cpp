#include "golden/hf_models.h"

#include <ATen/ATen.h>
#include <accelerate/transformers/registry.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <stdexcept>

#include "golden/reference_data.h"
#include "support/ranks.h"

namespace accelerate::test {
namespace {

namespace fs = std::filesystem;
namespace tf = accelerate::transformers;

// A copy of `folder` with config_file in the place of config.json.
class Disguised {
 public:
  Disguised(const fs::path& folder, const std::string& config_file) {
    std::string pattern = (fs::temp_directory_path() / "hf_models_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp: " + pattern);
    path_ = pattern;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().filename() == "config.json") continue;
      fs::copy(entry.path(), path_ / entry.path().filename());
    }
    fs::copy_file(folder / config_file, path_ / "config.json");
  }
  ~Disguised() { fs::remove_all(path_); }
  Disguised(const Disguised&) = delete;
  Disguised& operator=(const Disguised&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

tf::ModelTask task_of(const std::string& class_name) {
  for (const tf::Architecture& known : tf::registered_architectures()) {
    if (known.name == class_name) return known.task;
  }
  throw std::runtime_error("no architecture is called " + class_name);
}

// io.json of the folder; a checkpoint in shards is described where it is in one file.
fs::path described_in(const fs::path& folder) {
  const std::string name = folder.filename();
  const std::string shards = "_sharded";
  if (fs::exists(folder / "io.json") || !name.ends_with(shards)) return folder;
  return folder.parent_path() / name.substr(0, name.size() - shards.size());
}

std::vector<RecordedModel> recorded_models() {
  std::vector<RecordedModel> models;
  for (const fs::path& folder : fixture_folders("hf_models")) {
    const fs::path io = described_in(folder).filename() / fs::path("io.json");
    const nlohmann::json recorded = load_fixture(("hf_models" / io).string());
    const size_t before = models.size();
    for (const char* config : {"config.json", "config_v4.json"}) {
      if (fs::exists(folder / config)) models.push_back({folder, config, recorded});
    }
    if (models.size() == before) throw std::runtime_error(folder.string() + " has no config.json");
  }
  std::ranges::sort(models, {}, &RecordedModel::name);
  return models;
}

class ModelTest : public Ranks {
 public:
  ModelTest(RecordedModel model, std::function<void(const RecordedModel&, Differences&)> check)
      : model_(std::move(model)), check_(std::move(check)) {}

  void TestBody() override {
    const auto largest = run_collect(1, [this](const Rank&) {
      at::set_num_threads(1);
      Differences differences;
      check_(model_, differences);
      return std::vector<double>{differences.largest()};
    });
    if (!largest.at(0).empty()) {
      RecordProperty("largest_difference", std::to_string(largest.at(0).at(0) * 1e6) + "e-6");
    }
  }

 private:
  RecordedModel model_;
  std::function<void(const RecordedModel&, Differences&)> check_;
};

}  // namespace

std::string RecordedModel::name() const {
  std::string text = folder.filename().string() + "_" + fs::path(config_file).stem().string();
  std::ranges::replace_if(
      text, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return text;
}

std::shared_ptr<tf::PretrainedModel> RecordedModel::load(
    const tf::PretrainedOptions& options) const {
  const tf::ModelTask task = task_of(io.at("class"));
  if (config_file == "config.json") return tf::load_pretrained(task, folder.string(), options);
  const Disguised disguised(folder, config_file);
  return tf::load_pretrained(task, disguised.path().string(), options);
}

SafetensorsFile RecordedModel::tensors() const {
  return SafetensorsFile(described_in(folder) / "io.safetensors");
}

tf::ModelInputs inputs_of_case(const RecordedModel& model, const SafetensorsFile& tensors,
                               const std::string& name) {
  tf::ModelInputs inputs;
  const std::map<std::string, at::Tensor*> fields{
      {"input_ids", &inputs.input_ids},
      {"attention_mask", &inputs.attention_mask},
      {"token_type_ids", &inputs.token_type_ids},
      {"position_ids", &inputs.position_ids},
      {"labels", &inputs.labels},
      {"decoder_input_ids", &inputs.decoder_input_ids},
      {"decoder_attention_mask", &inputs.decoder_attention_mask}};
  for (const auto& [input, shape] : model.io.at("cases").at(name).at("inputs").items()) {
    *fields.at(input) = tensors.tensor(name + "." + input);
    EXPECT_EQ(fields.at(input)->sizes().vec(), shape.get<std::vector<int64_t>>()) << input;
  }
  return inputs;
}

void Differences::expect_near(const std::string& what, const at::Tensor& actual,
                              const at::Tensor& expected, double floor) {
  ASSERT_TRUE(actual.defined()) << what;
  ASSERT_EQ(actual.sizes().vec(), expected.sizes().vec()) << what;
  if (expected.numel() == 0) return;
  const at::Tensor own = actual.detach().to(at::kDouble), wanted = expected.to(at::kDouble);
  const double size = std::max(wanted.abs().max().item<double>(), floor);
  const double difference = (own - wanted).abs().max().item<double>() / std::max(size, 1e-30);
  largest_ = std::max(largest_, difference);
  EXPECT_LE(difference, kRelative) << what << ", whose largest number is " << size;
}

void Differences::expect_near(const std::string& what, double actual, double expected,
                              double floor) {
  expect_near(what, at::scalar_tensor(actual, at::kDouble),
              at::scalar_tensor(expected, at::kDouble), floor);
}

int register_model_tests(const std::string& suite,
                         const std::function<bool(const RecordedModel&)>& wanted,
                         const std::function<void(const RecordedModel&, Differences&)>& check) {
  return register_recorded(suite, [&] {
    int count = 0;
    for (const RecordedModel& model : recorded_models()) {
      if (!wanted(model)) continue;
      ++count;
      testing::RegisterTest(suite.c_str(), model.name().c_str(), nullptr, nullptr, __FILE__,
                            __LINE__, [=]() -> Ranks* { return new ModelTest(model, check); });
    }
    return count;
  });
}

int register_model_tests(const std::string& suite,
                         const std::function<void(const RecordedModel&, Differences&)>& check) {
  return register_model_tests(
      suite, [](const RecordedModel&) { return true; }, check);
}

}  // namespace accelerate::test

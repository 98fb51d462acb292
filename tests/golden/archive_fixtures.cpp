// Files that Python's Accelerate wrote with torch.save: read exactly, and trained on with.
#include <accelerate/errors.h>
#include <accelerate/optimizer_state.h>
#include <accelerate/torch_archive.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>

#include "golden/reference_data.h"
#include "launch/scratch_folder.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

const std::filesystem::path& state_folder() {
  static const std::filesystem::path kFolder = fixtures_folder().path / "accelerate_state";
  return kFolder;
}

json expected_of(const std::string& folder) {
  return *load_reference(fixtures_folder(), "accelerate_state/" + folder + "/expected.json").json;
}

// The folders whose recorded contents have something of that name; all for an empty one.
std::vector<std::string> folders(const std::string& key = "") {
  std::vector<std::string> names;
  if (!std::filesystem::is_directory(state_folder())) return names;
  for (const auto& entry : std::filesystem::directory_iterator(state_folder())) {
    if (!std::filesystem::exists(entry.path() / "expected.json")) continue;
    const std::string name = entry.path().filename().string();
    if (key.empty() || expected_of(name).contains(key)) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

double number(const json& value) {
  if (!value.is_string()) return value.get<double>();
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  return value == "Infinity" ? infinity : -infinity;
}

at::Tensor floats(const json& recorded) {
  std::vector<double> values;
  for (const json& value : recorded.at("values")) values.push_back(number(value));
  return torch::tensor(values, at::kDouble)
      .to(at::kFloat)
      .view(recorded.at("shape").get<std::vector<int64_t>>());
}

std::string dtype_name(const at::Tensor& tensor) {
  static const std::map<at::ScalarType, std::string> kNames{
      {at::kFloat, "float32"}, {at::kLong, "int64"}, {at::kByte, "uint8"}, {at::kUInt32, "uint32"}};
  return kNames.at(tensor.scalar_type());
}

// Compares a value with what was recorded of it, in the words of the fixtures.
class Comparison {
 public:
  void compare(const TorchValue& value, const json& recorded, const std::string& place) {
    SCOPED_TRACE(place);
    if (recorded.is_object()) return compare_object(value, recorded, place);
    if (recorded.is_null()) {
      EXPECT_TRUE(value.is_none());
    } else if (recorded.is_boolean()) {
      EXPECT_EQ(value.as_bool(), recorded.get<bool>());
    } else if (recorded.is_number()) {
      EXPECT_EQ(value.as_number(), recorded.get<double>());
    } else if (recorded.is_string()) {
      EXPECT_EQ(value.as_string(), recorded.get<std::string>());
    } else {
      compare_items(value.as_sequence(), recorded, place);
    }
    ++compared_;
  }

  int compared() const { return compared_; }

 private:
  void compare_object(const TorchValue& value, const json& recorded, const std::string& place) {
    ++compared_;
    if (recorded.contains("numpy_dtype")) {
      const auto* array = std::get_if<TorchNumpyArray>(&value.variant());
      ASSERT_NE(array, nullptr);
      return compare_tensor(array->values, recorded.at("numpy_dtype"), recorded);
    }
    if (recorded.contains("values")) {
      return compare_tensor(value.as_tensor(), recorded.value("dtype", "float32"), recorded);
    }
    if (recorded.contains("first8")) {
      const auto& items = value.as_sequence();
      ASSERT_EQ(items.size(), recorded.at("length").get<size_t>());
      compare(items.back(), recorded.at("last"), place + ", last");
      return compare_items({items.begin(), items.begin() + 8}, recorded.at("first8"), place);
    }
    const TorchDict& dict = value.as_dict();
    ASSERT_EQ(dict.size(), recorded.size());
    for (const auto& [key, held] : recorded.items()) {
      const TorchValue* entry = dict.find(key);
      if (entry == nullptr) entry = dict.find(int64_t{std::stoll("0" + key)});
      ASSERT_NE(entry, nullptr) << key;
      compare(*entry, held, place + "[" + key + "]");
    }
  }

  void compare_items(const std::vector<TorchValue>& items, const json& recorded,
                     const std::string& place) {
    ASSERT_EQ(items.size(), recorded.size());
    for (size_t i = 0; i < items.size(); ++i) {
      compare(items[i], recorded[i], place + "[" + std::to_string(i) + "]");
    }
  }

  // All elements, or the first of them.
  static void compare_tensor(const at::Tensor& tensor, const json& dtype, const json& recorded) {
    EXPECT_EQ(dtype_name(tensor), dtype.get<std::string>());
    EXPECT_EQ(tensor.sizes().vec(), recorded.at("shape").get<std::vector<int64_t>>());
    json values = recorded.value("values", recorded);
    for (const char* first : {"first8", "first16"}) {
      if (values.is_object() && values.contains(first)) values = json(values.at(first));
    }
    const at::Tensor flat = tensor.flatten().to(at::kDouble);
    for (size_t i = 0; i < values.size(); ++i) {
      const double value = flat[static_cast<int64_t>(i)].item<double>();
      const double expected = number(values[i]);
      const bool is_float = tensor.scalar_type() == at::kFloat;
      EXPECT_EQ(value, is_float ? double{static_cast<float>(expected)} : expected) << i;
    }
  }

  int compared_ = 0;
};

// "optimizer_1_bin" is what optimizer_1.bin holds; empty for other keys.
std::string file_of(const std::string& key) {
  for (const char* ending : {"_bin", "_pkl"}) {
    if (key.ends_with(ending)) return key.substr(0, key.size() - 4) + "." + (ending + 1);
  }
  return {};
}

class ArchiveFixtures : public ::testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path path(const std::string& file) const {
    return state_folder() / GetParam() / file;
  }
};

class ResumedFixtures : public ArchiveFixtures {};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ArchiveFixtures);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ResumedFixtures);
INSTANTIATE_TEST_SUITE_P(Folders, ArchiveFixtures, ::testing::ValuesIn(folders()),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Folders, ResumedFixtures, ::testing::ValuesIn(folders("after_resume")),
                         [](const auto& info) { return info.param; });

TEST_P(ArchiveFixtures, FilesHoldWhatPythonPutIntoThem) {
  const json expected = expected_of(GetParam());
  for (const auto& [key, recorded] : expected.items()) {
    const std::string file = file_of(key);
    if (file.empty() || !std::filesystem::exists(path(file))) continue;
    Comparison comparison;
    // Of models the shapes are recorded beside the file, and the weights for all kinds of files.
    const json& contents = key == "pytorch_model_bin" ? expected.at("weights") : recorded;
    comparison.compare(load_torch_archive(path(file)), contents, file);
    EXPECT_GT(comparison.compared(), 3) << file;
  }
}

TEST_P(ArchiveFixtures, EveryArchiveIsReadAndWrittenAgainWithoutLoss) {
  const ScratchFolder scratch;
  for (const auto& entry : std::filesystem::directory_iterator(state_folder() / GetParam())) {
    const auto extension = entry.path().extension();
    if (extension != ".bin" && extension != ".pkl") continue;
    const TorchValue value = load_torch_archive(entry.path());
    if (entry.path().filename().string().starts_with("random_states")) {
      // NumPy's state is for NumPy alone.
      EXPECT_THROW(save_torch_archive(scratch.path() / "again.bin", value), CheckpointError);
      continue;
    }
    save_torch_archive(scratch.path() / "again.bin", value);
    EXPECT_TRUE(load_torch_archive(scratch.path() / "again.bin") == value) << entry.path();
  }
}

TEST_P(ResumedFixtures, RandomStatesGoOnWherePythonStopped) {
  const json expected = expected_of(GetParam());
  const TorchValue states = load_torch_archive(path("random_states_0.pkl"));
  EXPECT_EQ(states.as_dict().at("step").as_integer(), expected.at("accelerator_step"));
  at::Generator generator = at::detail::createCPUGenerator();
  generator.set_state(states.as_dict().at("torch_manual_seed").as_tensor());
  const json& recorded = expected.at("random_numbers_after_load_state").at("torch_rand5");
  const at::Tensor drawn = torch::rand({5}, generator);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(drawn[i].item<float>(), recorded[static_cast<size_t>(i)].get<float>());
  }
}

torch::nn::Sequential model_of(const json& weights) {
  torch::nn::Sequential model(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 3));
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->named_parameters()) {
    parameter.value().copy_(floats(weights.at(parameter.key())));
  }
  return model;
}

TEST_P(ResumedFixtures, TrainingGoesOnAsInPython) {
  const json expected = expected_of(GetParam());
  torch::nn::Sequential model = model_of(expected.at("weights"));
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(123));
  load_optimizer_state(optimizer, load_torch_archive(path("optimizer.bin")));
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), expected.at("lr").get<double>());

  const json& after = expected.at("after_resume");
  for (size_t i = 0; i < expected.at("next_batches").size(); ++i) {
    const json& batch = expected.at("next_batches")[i];
    const auto matrix = [&](const char* name) {
      std::vector<double> values;
      for (const json& row : batch.at(name)) {
        for (const json& value : row) values.push_back(value.get<double>());
      }
      return torch::tensor(values, at::kDouble)
          .to(at::kFloat)
          .view({static_cast<int64_t>(batch.at(name).size()), -1});
    };
    optimizer.param_groups()[0].options().set_lr(after.at("lr_used")[i].get<double>());
    optimizer.zero_grad();
    const at::Tensor loss = torch::mse_loss(model->forward(matrix("x")), matrix("y"));
    loss.backward();
    optimizer.step();
    EXPECT_TRUE(torch::allclose(loss, torch::tensor(after.at("loss")[i].get<float>()), 1e-5, 1e-5));
  }
  for (const auto& parameter : model->named_parameters()) {
    EXPECT_TRUE(torch::allclose(parameter.value(),
                                floats(after.at("weights_after").at(parameter.key())), 1e-5, 1e-5))
        << parameter.key();
  }
}

TEST(ArchiveFixturesOptimizers, GroupsAmsgradAndMomentumComeBackOutAsTheyWentIn) {
  const auto folder = state_folder() / "two_models_custom";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no recorded states";
  const json expected = expected_of("two_models_custom");
  torch::nn::Sequential model = model_of(expected.at("weights_1"));
  const auto parameters = model->parameters();
  using Options = torch::optim::AdamWOptions;
  const std::vector<torch::optim::OptimizerParamGroup> groups{
      {{parameters[0], parameters[1]}, std::make_unique<Options>(1)},
      {{parameters[2], parameters[3]}, std::make_unique<Options>(1)}};
  torch::optim::AdamW adamw(groups, Options(1));
  const TorchValue saved = load_torch_archive(folder / "optimizer_1.bin");
  load_optimizer_state(adamw, saved);
  // What schedulers keep in the groups is theirs.
  std::vector<TorchDict> schedules;
  for (const TorchValue& group : saved.as_dict().at("param_groups").as_sequence()) {
    schedules.push_back(TorchDict{{"initial_lr", group.as_dict().at("initial_lr")}});
  }
  Comparison comparison;
  comparison.compare(optimizer_state(adamw, {.group_entries = schedules}),
                     expected.at("optimizer_1_bin"), "optimizer_1.bin");
  EXPECT_GT(comparison.compared(), 20);

  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(1));
  load_optimizer_state(sgd, load_torch_archive(folder / "optimizer.bin"));
  const auto& options = static_cast<torch::optim::SGDOptions&>(sgd.param_groups()[0].options());
  EXPECT_TRUE(options.nesterov());
  EXPECT_EQ(options.momentum(), 0.9);
}

}  // namespace
}  // namespace accelerate::test

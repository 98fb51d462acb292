// Files that Python's Accelerate wrote with torch.save: read exactly, and trained on with.
#include <accelerate/errors.h>
#include <accelerate/optimizer_state.h>
#include <accelerate/torch_archive.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "golden/recorded_arguments.h"
#include "golden/recorded_states.h"
#include "golden/reference_data.h"
#include "launch/scratch_folder.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

// The names of the folders whose recorded contents have something of that name; all for an empty
// one. None where they cannot be read: then a test of its own fails.
std::vector<std::string> archive_folders(const std::string& key = "") {
  std::vector<std::string> names;
  try {
    for (const RecordedState& state : recorded_states(
             [&](const json& expected) { return key.empty() || expected.contains(key); })) {
      names.push_back(state.name);
    }
  } catch (const std::exception&) {
  }
  return names;
}

std::string dtype_name(const at::Tensor& tensor) {
  static const std::map<at::ScalarType, std::string> kNames{
      {at::kFloat, "float32"},     {at::kDouble, "float64"}, {at::kHalf, "float16"},
      {at::kBFloat16, "bfloat16"}, {at::kLong, "int64"},     {at::kInt, "int32"},
      {at::kShort, "int16"},       {at::kChar, "int8"},      {at::kByte, "uint8"},
      {at::kUInt16, "uint16"},     {at::kUInt32, "uint32"},  {at::kUInt64, "uint64"},
      {at::kBool, "bool"}};
  return kNames.at(tensor.scalar_type());
}

// Of {"first8": [...]} the list, null where there is none.
json first_of(const json& recorded) {
  if (!recorded.is_object()) return nullptr;
  for (const auto& [key, values] : recorded.items()) {
    if (key.starts_with("first") && values.is_array()) return values;
  }
  return nullptr;
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
    if (const json first = first_of(recorded); !first.is_null()) {
      const auto& items = value.as_sequence();
      ASSERT_EQ(items.size(), recorded.at("length").get<size_t>());
      ASSERT_GE(items.size(), first.size());
      if (recorded.contains("last")) compare(items.back(), recorded.at("last"), place + ", last");
      const auto end = items.begin() + static_cast<std::ptrdiff_t>(first.size());
      return compare_items({items.begin(), end}, first, place);
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
    const at::Tensor flat = tensor.flatten().to(at::kDouble);
    if (const json first = first_of(values); !first.is_null()) {
      values = first;
      ASSERT_GE(flat.numel(), static_cast<int64_t>(values.size()));
    } else {
      ASSERT_EQ(flat.numel(), static_cast<int64_t>(values.size()));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const double value = flat[static_cast<int64_t>(i)].item<double>();
      const double expected = recorded_number(values[i]);
      const bool is_float = tensor.scalar_type() == at::kFloat;
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(value)) << i;
        continue;
      }
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
  std::filesystem::path path(const std::string& file) const { return state_.folder / file; }
  const RecordedState state_ = recorded_state(GetParam());
};

class ResumedFixtures : public ArchiveFixtures {};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ArchiveFixtures);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ResumedFixtures);
INSTANTIATE_TEST_SUITE_P(Folders, ArchiveFixtures, ::testing::ValuesIn(archive_folders()),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Folders, ResumedFixtures,
                         ::testing::ValuesIn(archive_folders("after_resume")),
                         [](const auto& info) { return info.param; });

TEST(ArchiveFixturesFolder, HasStatesOfEachKind) {
  for (const char* key : {"", "after_resume", "optimizer_bin", "scheduler_bin"}) {
    EXPECT_FALSE(archive_folders(key).empty()) << fixtures_folder().path / "accelerate_state"
                                               << " " << key;
  }
}

TEST_P(ArchiveFixtures, HasTheFilesThatWereRecorded) {
  ASSERT_FALSE(state_.expected.at("files").empty());
  for (const auto& [file, bytes] : state_.expected.at("files").items()) {
    ASSERT_TRUE(std::filesystem::is_regular_file(path(file))) << path(file);
    EXPECT_EQ(std::filesystem::file_size(path(file)), bytes.get<size_t>()) << path(file);
  }
}

TEST_P(ArchiveFixtures, FilesHoldWhatPythonPutIntoThem) {
  const json& expected = state_.expected;
  for (const auto& [key, recorded] : expected.items()) {
    const std::string file = file_of(key);
    if (file.empty()) continue;
    Comparison comparison;
    // Of models the shapes are recorded beside the file, and the weights for all kinds of files.
    const json& contents = key == "pytorch_model_bin" ? expected.at("weights") : recorded;
    comparison.compare(load_torch_archive(path(file)), contents, file);
    EXPECT_GT(comparison.compared(), 0) << file;
  }
}

bool holds_numpy(const TorchValue& value) {
  if (std::holds_alternative<TorchNumpyArray>(value.variant())) return true;
  if (value.is_dict()) {
    return std::ranges::any_of(value.as_dict().entries(),
                               [](const auto& e) { return holds_numpy(e.second); });
  }
  const bool is_sequence = std::holds_alternative<TorchValue::List>(value.variant()) ||
                           std::holds_alternative<TorchTuple>(value.variant());
  return is_sequence && std::ranges::any_of(value.as_sequence(), holds_numpy);
}

TEST_P(ArchiveFixtures, EveryArchiveIsReadAndWrittenAgainWithoutLoss) {
  const ScratchFolder scratch;
  for (const auto& entry : std::filesystem::directory_iterator(state_.folder)) {
    const auto extension = entry.path().extension();
    if (extension != ".bin" && extension != ".pkl") continue;
    const TorchValue value = load_torch_archive(entry.path());
    if (holds_numpy(value)) {  // NumPy's state is for NumPy alone.
      EXPECT_THROW(save_torch_archive(scratch.path() / "again.bin", value), CheckpointError);
      continue;
    }
    save_torch_archive(scratch.path() / "again.bin", value);
    EXPECT_TRUE(load_torch_archive(scratch.path() / "again.bin") == value) << entry.path();
  }
}

TEST_P(ResumedFixtures, RandomStatesGoOnWherePythonStopped) {
  const json& expected = state_.expected;
  const TorchValue states = load_torch_archive(path("random_states_0.pkl"));
  EXPECT_EQ(states.as_dict().at("step").as_integer(), expected.at("accelerator_step"));
  at::Generator generator = at::detail::createCPUGenerator();
  generator.set_state(states.as_dict().at("torch_manual_seed").as_tensor());
  int compared = 0;
  for (const auto& [name, recorded] :
       state_.ordered.at("random_numbers_after_load_state").items()) {
    const at::Tensor drawn = draw_as_recorded(name, generator);
    if (!drawn.defined()) continue;
    ASSERT_EQ(drawn.numel(), static_cast<int64_t>(recorded.size()));
    for (size_t i = 0; i < recorded.size(); ++i) {
      // The normal distribution comes from functions that differ in the last bit.
      EXPECT_NEAR(drawn[static_cast<int64_t>(i)].item<float>(), recorded[i].get<float>(),
                  name.starts_with("torch_randn") ? 1e-6 : 0);
    }
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

// One rate for all groups, or one for each.
double rate_of_group(const json& rates, size_t group) {
  return recorded_number(rates.is_array() ? rates.at(group) : rates);
}

TEST_P(ResumedFixtures, TrainingGoesOnAsInPython) {
  const json& expected = state_.expected;
  RecordedNetwork model(state_.weights(), expected.at("model"));
  const auto optimizer = optimizer_for_state(expected.at("optimizer_bin"), model.parameters());
  auto& groups = optimizer->param_groups();
  for (auto& group : groups) group.options().set_lr(123);
  load_optimizer_state(*optimizer, load_torch_archive(path("optimizer.bin")));
  for (size_t g = 0; g < groups.size(); ++g) {
    EXPECT_EQ(groups[g].options().get_lr(), rate_of_group(expected.at("lr"), g));
  }

  const json& after = expected.at("after_resume");
  const json& batches = expected.at("next_batches");
  ASSERT_FALSE(batches.empty());
  for (size_t i = 0; i < batches.size(); ++i) {
    for (size_t g = 0; g < groups.size(); ++g) {
      groups[g].options().set_lr(rate_of_group(after.at("lr_used")[i], g));
    }
    optimizer->zero_grad();
    const at::Tensor loss = model.loss(model.forward(recorded_rows(batches[i].at("x"))),
                                       recorded_rows(batches[i].at("y")));
    loss.backward();
    optimizer->step();
    EXPECT_TRUE(torch::allclose(loss, torch::tensor(after.at("loss")[i].get<float>()), 1e-5, 1e-5));
  }
  for (const auto& parameter : model.named_parameters()) {
    EXPECT_TRUE(torch::allclose(parameter.value(),
                                recorded_tensor(after.at("weights_after").at(parameter.key())),
                                1e-5, 1e-5))
        << parameter.key();
  }
}

// A parameter of the shape that the state of it has; any where it has none.
std::vector<at::Tensor> parameters_for(const json& state) {
  std::vector<at::Tensor> parameters;
  for (const json& group : state.at("param_groups")) {
    for (const json& index : group.at("params")) {
      parameters.resize(std::max(parameters.size(), index.get<size_t>() + 1));
    }
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i] = torch::zeros({1}).requires_grad_();
    const std::string index = std::to_string(i);
    if (!state.at("state").contains(index)) continue;
    for (const auto& [name, entry] : state.at("state").at(index).items()) {
      if (name == "step" || !entry.is_object()) continue;
      const auto shape = entry.at("shape").template get<std::vector<int64_t>>();
      parameters[i] = torch::zeros(shape).requires_grad_();
    }
  }
  return parameters;
}

// Groups, amsgrad, momentum: all that the files of optimizers hold.
TEST_P(ArchiveFixtures, StatesOfOptimizersComeBackOutAsTheyWentIn) {
  for (const auto& [key, recorded] : state_.expected.items()) {
    if (!key.starts_with("optimizer") || !key.ends_with("_bin")) continue;
    const auto optimizer = optimizer_for_state(recorded, parameters_for(recorded));
    const TorchValue saved = load_torch_archive(path(file_of(key)));
    load_optimizer_state(*optimizer, saved);
    // What schedulers keep in the groups is theirs.
    std::vector<TorchDict> schedules;
    for (const TorchValue& group : saved.as_dict().at("param_groups").as_sequence()) {
      TorchDict& kept = schedules.emplace_back();
      if (const TorchValue* rate = group.as_dict().find("initial_lr"))
        kept.set("initial_lr", *rate);
    }
    Comparison comparison;
    comparison.compare(optimizer_state(*optimizer, {.group_entries = schedules}), recorded, key);
    EXPECT_GT(comparison.compared(), 0);
  }
}

}  // namespace
}  // namespace accelerate::test

// The parameters of recorded models against the names and shapes in their files.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <set>

#include "golden/hf_models.h"

namespace accelerate::test {
namespace {

namespace tf = accelerate::transformers;
using Shapes = std::map<std::string, std::vector<int64_t>>;

void check_names(const RecordedModel& recorded, Differences&) {
  const auto model = recorded.load({});
  Shapes own;
  int64_t count = 0;
  for (const auto& item : model->named_parameters()) {
    own[item.key()] = item.value().sizes().vec();
    count += item.value().numel();
  }
  EXPECT_EQ(own, recorded.io.at("tensors_in_file").get<Shapes>());
  EXPECT_EQ(count, recorded.io.at("num_parameters").get<int64_t>());

  std::set<std::string> tied;
  for (const auto& [other, registered] : model->tied_weights()) {
    tied.insert(other);
    EXPECT_TRUE(own.contains(registered)) << registered;
  }
  EXPECT_EQ(tied, recorded.io.at("state_dict_keys_not_in_file").get<std::set<std::string>>());
}

void check_saved_type(const RecordedModel& recorded, Differences&) {
  static const std::map<std::string, at::ScalarType> types{
      {"float32", at::kFloat}, {"float16", at::kHalf}, {"bfloat16", at::kBFloat16}};
  const at::ScalarType wanted = types.at(recorded.io.value("saved_dtype", "float32"));
  for (const auto& item : recorded.load({})->named_parameters()) {
    EXPECT_EQ(item.value().scalar_type(), wanted) << item.key();
  }
}

void check_nothing_to_report(const RecordedModel& recorded, Differences&) {
  std::vector<tf::PretrainedReport> reports;
  recorded.load({.report = [&](const tf::PretrainedReport& report) { reports.push_back(report); }});
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports.front().message, "");
}

[[maybe_unused]] const int kNames = register_model_tests("HfModelsNames", check_names);
[[maybe_unused]] const int kTypes = register_model_tests("HfModelsSavedType", check_saved_type);
[[maybe_unused]] const int kReports =
    register_model_tests("HfModelsLoadWithoutRemarks", check_nothing_to_report);

}  // namespace
}  // namespace accelerate::test

// What models need of memory, against the reference and against files of real models.
#include <cmath>
#include <filesystem>
#include <map>
#include <string>

#include "base/size_in_words.h"
#include "estimate/architectures.h"
#include "estimate/model_source.h"
#include "estimate/training_memory.h"
#include "golden/case_log.h"
#include "golden/reference_data.h"

namespace accelerate::test {
namespace {

using estimate::Parameter;
using nlohmann::json;

TEST(EstimateVectors, EstimateTrainingUsage) {
  const json all = load_vectors("estimate_training_usage.json");
  CaseLog log;
  for (const json& recorded : all) {
    log.run(recorded, [&] {
      const auto usage = estimate::reference_usage(recorded.at("bytes"), recorded.at("precision"));
      const json result =
          usage ? json{{"model", usage->model},
                       {"optimizer", usage->optimizer},
                       {"gradients", usage->gradients},
                       {"step", usage->step}}
                : json{{"model", -1}, {"optimizer", -1}, {"gradients", -1}, {"step", -1}};
      log.expect_equal("usage", result, recorded.at("expected"));
    });
  }
  log.report();
}

// What a size in words says, in bytes: "1.50 KiB", and "1.5 KB" as the reference calls the same
// unit.
double bytes_in(const std::string& words) {
  static const std::map<std::string, int> kPowers{
      {"B", 0},   {"bytes", 0}, {"KB", 1},  {"KiB", 1}, {"MB", 2},  {"MiB", 2}, {"GB", 3},
      {"GiB", 3}, {"TB", 4},    {"TiB", 4}, {"PB", 5},  {"PiB", 5}, {"EiB", 6}};
  const size_t blank = words.find(' ');
  return std::stod(words.substr(0, blank)) * std::pow(1024, kPowers.at(words.substr(blank + 1)));
}

TEST(EstimateVectors, SizesInWordsSayWhatTheReferenceSays) {
  CaseLog log;
  for (const json& recorded : load_vectors("convert_bytes.json")) {
    log.run(recorded, [&] {
      const std::string words = size_in_words(recorded.at("input"), /*digits=*/2);
      log.expect_near(words, {bytes_in(words)}, {bytes_in(recorded.at("expected"))}, {});
    });
  }
  log.report();
}

std::map<std::string, std::vector<uint64_t>> shapes_of(const std::vector<Parameter>& parameters) {
  std::map<std::string, std::vector<uint64_t>> shapes;
  for (const Parameter& parameter : parameters) shapes[parameter.name] = parameter.shape;
  return shapes;
}

TEST(EstimateFixtures, AConfigurationTellsEveryTensorOfTheModel) {
  for (const std::filesystem::path& model : fixture_folders("hf_models")) {
    const auto stored = shapes_of(estimate::find_model(model.string()).parameters);
    int compared = 0;
    for (const char* name : {"config.json", "config_v4.json"}) {
      const std::filesystem::path config = model / name;
      if (!std::filesystem::exists(config)) continue;
      const auto described = estimate::find_model(config.string()).parameters;
      EXPECT_EQ(shapes_of(described), stored) << config;
      EXPECT_EQ(described.size(), stored.size()) << config;
      ++compared;
    }
    EXPECT_GT(compared, 0) << model;
  }
}

}  // namespace
}  // namespace accelerate::test

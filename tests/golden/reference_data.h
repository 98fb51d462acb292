// Recorded behaviour that tests compare with: where it is kept and how a test gets at it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace accelerate::test {

// A folder of recorded data: the environment variable names it; else it is the set beside the
// project, and where that is missing the part of it that the project keeps.
struct ReferenceFolder {
  std::string name;  // of the suite in which its files are listed
  std::string variable;
  std::filesystem::path path;
};
const ReferenceFolder& vectors_folder();
const ReferenceFolder& fixtures_folder();

struct ReferenceFile {
  std::optional<nlohmann::json> json{};
  std::string why_not{};  // where there is none
};

// Throws std::runtime_error that names the file if it is there and is no JSON.
ReferenceFile load_reference(const ReferenceFolder& folder, const std::string& file);

// Registers a test that is skipped, and so seen, for every JSON file and every folder inside
// `folder` that is not in `tested`. Returns their number. Call before main() starts the tests.
int list_untested(const ReferenceFolder& folder, const std::vector<std::string>& tested);

}  // namespace accelerate::test

// Defines `name` as the contents of the file, or skips the test.
#define LOAD_VECTORS_OR_SKIP(name, file) \
  ACCELERATE_LOAD_OR_SKIP(name, ::accelerate::test::vectors_folder(), file)
#define LOAD_FIXTURE_OR_SKIP(name, file) \
  ACCELERATE_LOAD_OR_SKIP(name, ::accelerate::test::fixtures_folder(), file)

#define ACCELERATE_LOAD_OR_SKIP(name, folder, file)                          \
  const auto name##_file = ::accelerate::test::load_reference(folder, file); \
  if (!name##_file.json.has_value()) GTEST_SKIP() << name##_file.why_not;    \
  const nlohmann::json& name = *name##_file.json

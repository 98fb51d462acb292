// Recorded behaviour that tests compare with: where it is kept and how a test gets at it.
//
// What is missing fails the test that asks for it. No recording is ever passed over in silence.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace accelerate::test {

// A folder of recorded data: the environment variable names it; else it is the set beside the
// project, and where that is missing the copy that the project keeps.
struct ReferenceFolder {
  std::string name;  // of the suite in which its files are listed
  std::string variable;
  std::filesystem::path path;
};
const ReferenceFolder& vectors_folder();
const ReferenceFolder& fixtures_folder();

// The contents of a JSON file in the folder. Throws std::runtime_error that names the file if it is
// missing or is not valid JSON.
nlohmann::json load_vectors(const std::string& file);
nlohmann::json load_fixture(const std::string& file);
// The same, with the keys of objects in the order of the file.
nlohmann::ordered_json load_fixture_in_order(const std::string& file);

// The folders in the folder `name` of the fixtures, sorted. Throws std::runtime_error if it is
// missing or has no folder.
std::vector<std::filesystem::path> fixture_folders(const std::string& name);

// Registers a test that fails unless everything in `tested` is in `folder`, and a test that is
// skipped, and so seen, for every JSON file and every folder inside `folder` that is not in
// `tested`. Returns the number of the latter. Call before main() starts the tests.
int list_recordings(const ReferenceFolder& folder, const std::vector<std::string>& tested);

// For tests that are registered one by one from what a folder holds: `add` registers them and
// returns their number. If it throws, a test of `suite` fails and says why; if there are none,
// which may be for what some of several recordings have beside the rest, one is skipped. Call
// before main() starts the tests.
int register_recorded(const std::string& suite, const std::function<int()>& add);

}  // namespace accelerate::test

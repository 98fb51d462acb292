#include "golden/reference_data.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

namespace accelerate::test {
namespace {

namespace fs = std::filesystem;

ReferenceFolder find_folder(const std::string& name, const char* variable,
                            const std::string& folder) {
  if (const char* given = std::getenv(variable); given != nullptr && *given != '\0') {
    return {name, variable, given};
  }
  const fs::path project = ACCELERATE_PROJECT_DIR;
  const fs::path beside = (project / ".." / "shared" / folder).lexically_normal();
  return {name, variable, fs::is_directory(beside) ? beside : project / "tests" / folder};
}

class Untested : public testing::Test {
 public:
  explicit Untested(std::string what) : what_(std::move(what)) {}
  void TestBody() override { GTEST_SKIP() << "no test for " << what_ << " yet"; }

 private:
  std::string what_;
};

// A folder that somebody named and that is not there is a mistake, not a skip.
class FolderIsThere : public testing::Test {
 public:
  explicit FolderIsThere(const ReferenceFolder& folder) : folder_(folder) {}
  void TestBody() override {
    EXPECT_TRUE(fs::is_directory(folder_.path)) << folder_.path << " (" << folder_.variable << ")";
  }

 private:
  const ReferenceFolder& folder_;
};

std::string test_name(const fs::path& path) {
  std::string text = path.stem().string();
  std::ranges::replace_if(
      text, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return text;
}

}  // namespace

const ReferenceFolder& vectors_folder() {
  static const ReferenceFolder folder = find_folder("Vectors", "ACCELERATE_VECTORS", "vectors");
  return folder;
}

const ReferenceFolder& fixtures_folder() {
  static const ReferenceFolder folder = find_folder("Fixtures", "ACCELERATE_FIXTURES", "fixtures");
  return folder;
}

ReferenceFile load_reference(const ReferenceFolder& folder, const std::string& file) {
  const fs::path path = folder.path / file;
  std::ifstream stream(path);
  if (!stream) return {.why_not = path.string() + " is not there"};
  try {
    return {.json = nlohmann::json::parse(stream)};
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(path.string() + ": " + error.what());
  }
}

int list_untested(const ReferenceFolder& folder, const std::vector<std::string>& tested) {
  const auto add = [&](const std::string& name, const std::string& what, auto make) {
    testing::RegisterTest((folder.name + "Folder").c_str(), name.c_str(), nullptr, what.c_str(),
                          __FILE__, __LINE__, make);
  };
  add("IsThere", folder.path.string(),
      [&folder]() -> testing::Test* { return new FolderIsThere(folder); });
  std::vector<fs::path> entries;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder.path, error)) {
    const bool listed = entry.is_directory() || entry.path().extension() == ".json";
    const std::string name = entry.path().filename();
    if (listed && std::ranges::find(tested, name) == tested.end()) entries.push_back(entry.path());
  }
  std::ranges::sort(entries);
  for (const fs::path& path : entries) {
    const std::string what = path.filename();
    add(test_name(path), what, [what]() -> testing::Test* { return new Untested(what); });
  }
  return static_cast<int>(entries.size());
}

}  // namespace accelerate::test

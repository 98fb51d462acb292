#include "golden/reference_data.h"

#include <algorithm>
#include <cctype>
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

template <class Json>
Json load_json(const ReferenceFolder& folder, const std::string& file) {
  const fs::path path = folder.path / file;
  std::ifstream stream(path);
  if (!stream) {
    throw std::runtime_error(path.string() + " is missing (the folder is set by " +
                             folder.variable + ")");
  }
  try {
    return Json::parse(stream);
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(path.string() + ": " + error.what());
  }
}

class UntestedRecording : public testing::Test {
 public:
  explicit UntestedRecording(std::string what) : what_(std::move(what)) {}
  void TestBody() override { GTEST_SKIP() << "no test for " << what_ << " yet"; }

 private:
  std::string what_;
};

class ListedRecordings : public testing::Test {
 public:
  ListedRecordings(const ReferenceFolder& folder, std::vector<std::string> listed)
      : folder_(folder), listed_(std::move(listed)) {}
  void TestBody() override {
    ASSERT_TRUE(fs::is_directory(folder_.path)) << folder_.path << " (" << folder_.variable << ")";
    for (const std::string& name : listed_) {
      const fs::path path = folder_.path / name;
      EXPECT_TRUE(fs::exists(path)) << path << " is missing";
      if (fs::is_directory(path)) {
        EXPECT_FALSE(fs::is_empty(path)) << path;
      }
    }
  }

 private:
  const ReferenceFolder& folder_;
  std::vector<std::string> listed_;
};

class UnreadableRecordings : public testing::Test {
 public:
  explicit UnreadableRecordings(std::string why) : why_(std::move(why)) {}
  void TestBody() override { FAIL() << why_; }

 private:
  std::string why_;
};

class NothingOfThisKind : public testing::Test {
 public:
  // Other recordings may lack a kind; the project's own have them all.
  void TestBody() override {
    const ReferenceFolder& folder = fixtures_folder();
    ASSERT_NE(std::getenv(folder.variable.c_str()), nullptr)
        << folder.path << " has nothing of this kind";
    GTEST_SKIP() << folder.path << " has nothing of this kind";
  }
};

std::string test_name(const fs::path& path) {
  std::string text = path.stem().string();
  std::ranges::replace_if(
      text, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return text;
}

void register_test(const std::string& suite, const std::string& name,
                   const std::function<testing::Test*()>& make) {
  testing::RegisterTest(suite.c_str(), name.c_str(), nullptr, nullptr, __FILE__, __LINE__, make);
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

nlohmann::json load_vectors(const std::string& file) {
  return load_json<nlohmann::json>(vectors_folder(), file);
}

nlohmann::json load_fixture(const std::string& file) {
  return load_json<nlohmann::json>(fixtures_folder(), file);
}

nlohmann::ordered_json load_fixture_in_order(const std::string& file) {
  return load_json<nlohmann::ordered_json>(fixtures_folder(), file);
}

std::vector<fs::path> fixture_folders(const std::string& name) {
  const fs::path parent = fixtures_folder().path / name;
  if (!fs::is_directory(parent)) {
    throw std::runtime_error(parent.string() + " is missing (the folder is set by " +
                             fixtures_folder().variable + ")");
  }
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(parent)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  if (folders.empty()) throw std::runtime_error(parent.string() + " has no folder");
  std::ranges::sort(folders);
  return folders;
}

int list_recordings(const ReferenceFolder& folder, const std::vector<std::string>& tested) {
  const std::string suite = folder.name + "Folder";
  register_test(suite, "HasEveryRecordingThatIsListed", [&folder, tested]() -> testing::Test* {
    return new ListedRecordings(folder, tested);
  });
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
    register_test(suite, test_name(path),
                  [what]() -> testing::Test* { return new UntestedRecording(what); });
  }
  return static_cast<int>(entries.size());
}

int register_recorded(const std::string& suite, const std::function<int()>& add) {
  try {
    const int count = add();
    if (count == 0) {
      register_test(suite, "AreRecorded", []() -> testing::Test* { return new NothingOfThisKind; });
    }
    return count;
  } catch (const std::exception& error) {
    const std::string why = error.what();
    register_test(suite, "CanBeRead",
                  [why]() -> testing::Test* { return new UnreadableRecordings(why); });
    return 0;
  }
}

}  // namespace accelerate::test

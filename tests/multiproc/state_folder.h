// A folder for the checkpoints of one test.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace accelerate::test {

// Made by the test program, before its ranks are; gone with this object.
class StateFolder {
 public:
  StateFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "state-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  StateFolder(const StateFolder&) = delete;
  StateFolder& operator=(const StateFolder&) = delete;
  ~StateFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace accelerate::test

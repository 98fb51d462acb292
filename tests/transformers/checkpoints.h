// Folders, variables and a model for tests of checkpoints.
#pragma once

#include <ATen/ATen.h>
#include <accelerate/model_files.h>
#include <accelerate/transformers/pretrained.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "accelerate/errors.h"
#include "transformers/small_models.h"

namespace accelerate::test {

namespace fs = std::filesystem;

// An empty folder that goes away with the object.
class CheckpointFolder {
 public:
  CheckpointFolder() {
    static std::atomic<int> number{0};
    path_ = fs::temp_directory_path() /
            ("accelerate_checkpoint_" + std::to_string(getpid()) + '_' + std::to_string(number++));
    fs::create_directories(path_);
  }
  ~CheckpointFolder() { fs::remove_all(path_); }
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  const fs::path& path() const { return path_; }
  std::string text() const { return path_.string(); }

 private:
  fs::path path_;
};

inline void write_file(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with('.')) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Sets a variable of this process for as long as it lives; nothing: takes it away.
class Variable {
 public:
  Variable(std::string name, const std::optional<std::string>& value) : name_(std::move(name)) {
    if (const char* old = std::getenv(name_.c_str()); old != nullptr) old_ = old;
    set(value);
  }
  ~Variable() { set(old_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const std::optional<std::string>& value) const {
    if (value) {
      setenv(name_.c_str(), value->c_str(), 1);
    } else {
      unsetenv(name_.c_str());
    }
  }

  std::string name_;
  std::optional<std::string> old_{};
};

// The error that `call` throws, as its what(); fails where it throws none of that kind.
template <class Kind, class Call>
std::string error_from(const Call& call) {
  try {
    call();
  } catch (const Kind& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error of the expected kind";
  return {};
}

// GPT-2 whose file also says how texts are generated.
inline ModelConfig generating_gpt2() {
  ModelConfig config = small_gpt2();
  config.set("bos_token_id", int64_t{1});
  config.set("eos_token_id", int64_t{2});
  config.set("max_length", int64_t{30});
  return config;
}

// All values of both, bit for bit.
inline void expect_same_state(const torch::nn::Module& left, const torch::nn::Module& right) {
  const ModelStateDict one = get_state_dict(left);
  const ModelStateDict other = get_state_dict(right);
  ASSERT_EQ(one.keys(), other.keys());
  for (const auto& item : one) {
    EXPECT_EQ(item.value().scalar_type(), other[item.key()].scalar_type()) << item.key();
    EXPECT_TRUE(at::equal(item.value(), other[item.key()])) << item.key();
  }
}

}  // namespace accelerate::test

// Files for the tests of safetensors and models: a folder of its own for each test, removed at its
// end, and headers written by hand.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "files/durable/byte_sink.h"
#include "support/error_of.h"

namespace accelerate::test {

class ScratchFolder : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              ("accelerate_" + std::string(info->test_suite_name()) + "_" +
               std::to_string(getpid()) + "_" + info->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    const auto path = folder_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    EXPECT_TRUE(file.good()) << name;
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::set<std::string> entries() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  std::filesystem::path folder_;
};

// The file with that header, as it stands, and that many bytes of data: 0, 1, 2, ...
inline std::string safetensors_file(std::string_view header, size_t data_bytes = 0) {
  std::string file;
  for (unsigned shift = 0; shift < 64; shift += 8) {
    file += static_cast<char>(uint64_t{header.size()} >> shift & 0xff);
  }
  file += header;
  for (size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i);
  return file;
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Keeps what is written to it.
struct MemorySink final : files::ByteSink {
  void write(std::span<const std::byte> bytes) override {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes as text
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    largest_write = std::max(largest_write, bytes.size());
  }
  void begin_part(std::string_view name) override { parts.emplace_back(name, text.size()); }

  std::string text;
  std::vector<std::pair<std::string, size_t>> parts;  // name, where it begins
  size_t largest_write = 0;
};

}  // namespace accelerate::test

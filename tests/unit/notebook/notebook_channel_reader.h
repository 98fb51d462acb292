// The kernel's end of the way from a program to its notebook.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace accelerate::test {

class InNotebook : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "notebook-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    const std::filesystem::path channel = folder_ / "channel";
    ASSERT_EQ(mkfifo(channel.c_str(), 0600), 0);
    reader_ = open(channel.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    ASSERT_GE(reader_, 0);
    setenv("ACCELERATE_NOTEBOOK_CHANNEL", channel.c_str(), 1);
    // As in a notebook, it is no terminal, also where the tests are run by hand.
    standard_error_ = dup(STDERR_FILENO);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, STDERR_FILENO);
    close(nowhere);
  }
  void TearDown() override {
    dup2(standard_error_, STDERR_FILENO);
    close(standard_error_);
    close(reader_);
    unsetenv("ACCELERATE_NOTEBOOK_CHANNEL");
    std::filesystem::remove_all(folder_);
  }

  // All messages that have come since the last call; those in files are read from there.
  std::vector<nlohmann::json> messages() {
    std::string bytes;
    char buffer[4096];
    ssize_t count = 0;
    while ((count = read(reader_, buffer, sizeof buffer)) > 0) {
      bytes.append(buffer, static_cast<size_t>(count));
    }
    std::vector<nlohmann::json> found;
    size_t begin = 0;
    for (size_t end = bytes.find('\n'); end != std::string::npos; end = bytes.find('\n', begin)) {
      found.push_back(nlohmann::json::parse(bytes.substr(begin, end - begin)));
      begin = end + 1;
      if (!found.back().contains("file")) continue;
      std::ifstream in(found.back()["file"].get<std::string>(), std::ios::binary);
      found.back() = nlohmann::json::parse(in);
    }
    return found;
  }

  std::filesystem::path folder_;

 private:
  int reader_ = -1;
  int standard_error_ = -1;
};

}  // namespace accelerate::test

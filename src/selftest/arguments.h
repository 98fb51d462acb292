// The command line of accelerate-selftest.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace accelerate::selftest {

struct Arguments {
  bool help = false;
  bool json = false;
  std::chrono::seconds timeout{120};  // the most that a rank waits for another
  std::filesystem::path folder{};     // where checkpoints are tried out; empty: temporary files
};

// Throws ConfigError that names the argument.
Arguments parse_arguments(const std::vector<std::string>& arguments);

std::string help_text();

}  // namespace accelerate::selftest

// The command line that the examples share: --name value or --name=value.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "command_line.h"

struct Arguments {
  int64_t epochs = 2;
  int64_t batch_size = 64;  // of each process
  double lr = 3e-3;
  uint64_t seed = 1;
  std::filesystem::path data = "/usr/share/datasets/fashion-mnist";
};

// Prints what is wrong to standard error and ends the program with status 2 if it cannot be read.
inline Arguments parse_arguments(int argc, char** argv) {
  Arguments arguments;
  read_options(
      argc, argv,
      {
          {"--epochs", [&](const std::string& text) { arguments.epochs = std::stoll(text); }},
          {"--batch_size",
           [&](const std::string& text) { arguments.batch_size = std::stoll(text); }},
          {"--lr", [&](const std::string& text) { arguments.lr = std::stod(text); }},
          {"--seed", [&](const std::string& text) { arguments.seed = std::stoull(text); }},
          {"--data", [&](const std::string& text) { arguments.data = text; }},
      });
  return arguments;
}

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
      argc, argv, "Trains a convnet on Fashion-MNIST and prints its accuracy on the test images.",
      {
          {"--epochs", number_option("passes over the data [2]", arguments.epochs, int64_t{0})},
          {"--batch_size",
           number_option("images of each process at once [64]", arguments.batch_size, int64_t{1})},
          {"--lr", number_option("learning rate [0.003]", arguments.lr)},
          {"--seed", number_option("of weights and order [1]", arguments.seed)},
          {"--data",
           {"folder of the four files [/usr/share/datasets/fashion-mnist]",
            [&](const std::string& text) { arguments.data = text; }}},
      });
  return arguments;
}

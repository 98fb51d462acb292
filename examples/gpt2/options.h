// The command line of the GPT-2 example: --name value or --name=value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "../command_line.h"
#include "gpt2.h"

struct Options {
  std::vector<std::filesystem::path> data;  // token files, see TokenDataset; --data once for each
  gpt2::Config model{};
  int64_t batch = 16;             // samples of one process in a micro-batch
  int64_t total_tokens = 524288;  // of one update, over all processes
  int64_t steps = 1000;           // the length of the schedule
  int64_t stop = 0;               // end after so many steps in all; 0: at the end of the schedule
  int64_t warmup = 100;
  int64_t log_every = 10;
  int64_t sample_tokens = 0;  // printed at the end
  double lr = 6e-4;
  double weight_decay = 0.1;
  double max_norm = 1.0;
  uint64_t seed = 1;
  bool bf16 = true;                  // false: float32
  bool capture = true;               // replay micro-batches as CUDA graphs where that is possible
  std::filesystem::path checkpoint;  // folder, written at the end; read first where it exists
  int64_t save_every = 0;            // steps between checkpoints on the way; 0: none
};

// Prints what is wrong to standard error and ends the program with status 2 if it cannot be read.
inline Options parse_options(int argc, char** argv) {
  Options options;
  const auto integer = [](int64_t& to) {
    return [&to](const std::string& text) { to = std::stoll(text); };
  };
  const auto number = [](double& to) {
    return [&to](const std::string& text) { to = std::stod(text); };
  };
  const OptionSetters setters{
      {"--data", [&](const std::string& text) { options.data.emplace_back(text); }},
      {"--model", [&](const std::string& text) { options.model = gpt2::config_named(text); }},
      {"--layers", integer(options.model.layers)},
      {"--heads", integer(options.model.heads)},
      {"--width", integer(options.model.width)},
      {"--positions", integer(options.model.positions)},
      {"--vocabulary", integer(options.model.vocabulary)},
      {"--batch", integer(options.batch)},
      {"--total_tokens", integer(options.total_tokens)},
      {"--steps", integer(options.steps)},
      {"--stop", integer(options.stop)},
      {"--warmup", integer(options.warmup)},
      {"--log_every", integer(options.log_every)},
      {"--save_every", integer(options.save_every)},
      {"--sample", integer(options.sample_tokens)},
      {"--lr", number(options.lr)},
      {"--weight_decay", number(options.weight_decay)},
      {"--max_norm", number(options.max_norm)},
      {"--seed", [&](const std::string& text) { options.seed = std::stoull(text); }},
      {"--bf16", [&](const std::string& text) { options.bf16 = std::stoi(text) != 0; }},
      {"--capture", [&](const std::string& text) { options.capture = std::stoi(text) != 0; }},
      {"--checkpoint", [&](const std::string& text) { options.checkpoint = text; }},
  };
  read_options(argc, argv, setters);
  if (options.data.empty()) refuse_options(argv[0], "--data is missing", setters);
  if (std::min({options.batch, options.total_tokens, options.steps, options.log_every,
                options.model.layers, options.model.positions}) < 1) {
    refuse_options(argv[0], "batch, tokens, steps, log_every, layers and positions start at 1",
                   setters);
  }
  return options;
}

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
  const OptionTable table{
      {"--data",
       {"a file of token ids (TokenDataset); once for each",
        [&](const std::string& text) { options.data.emplace_back(text); }}},
      {"--model",
       {"124M, 350M, 774M or 1558M",
        [&](const std::string& text) { options.model = gpt2::config_named(text); }}},
      {"--layers", number_option("instead of the model's", options.model.layers)},
      {"--heads", number_option("instead of the model's", options.model.heads)},
      {"--width", number_option("instead of the model's", options.model.width)},
      {"--positions",
       number_option("tokens of a sample, instead of the model's", options.model.positions)},
      {"--vocabulary", number_option("instead of the model's", options.model.vocabulary)},
      {"--batch", number_option("samples of one process in a micro-batch [16]", options.batch)},
      {"--total_tokens",
       number_option("of one update, over all processes [524288]", options.total_tokens)},
      {"--steps", number_option("length of the schedule [1000]", options.steps)},
      {"--stop",
       number_option("stop after this many steps [0: at the end of the schedule]", options.stop)},
      {"--warmup", number_option("steps [100]", options.warmup)},
      {"--log_every", number_option("steps [10]", options.log_every)},
      {"--save_every", number_option("steps between checkpoints [0: none]", options.save_every)},
      {"--sample", number_option("tokens to print at the end [0]", options.sample_tokens)},
      {"--lr", number_option("highest learning rate [0.0006]", options.lr)},
      {"--weight_decay", number_option("[0.1]", options.weight_decay)},
      {"--max_norm", number_option("of gradients [1]", options.max_norm)},
      {"--seed", number_option("[1]", options.seed)},
      {"--bf16", number_option("0: train in float32 [1]", options.bf16)},
      {"--capture", number_option("0: no CUDA graphs [1]", options.capture)},
      {"--checkpoint",
       {"folder, written at the end, read first where it exists",
        [&](const std::string& text) { options.checkpoint = text; }}},
  };
  read_options(argc, argv, "Trains GPT-2 from files of token ids, on one process or many.", table);
  if (options.data.empty()) refuse_options(program_name(argv), "--data is missing");
  if (std::min({options.batch, options.total_tokens, options.steps, options.log_every,
                options.model.layers, options.model.positions}) < 1) {
    refuse_options(program_name(argv),
                   "batch, tokens, steps, log_every, layers and positions start at 1");
  }
  return options;
}

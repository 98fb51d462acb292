// What the data loader costs and how fast it is.
#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include "data_parts.h"
#include "main.h"
#include "report.h"

namespace bench {
namespace {

int main(int argc, char** argv) {
  int repetitions = 0;
  std::string json_file;
  std::string folder = std::filesystem::temp_directory_path();
  nlohmann::json results;
  CLI::App app("Times the data loader");
  app.require_subcommand(1);
  const auto part = [&](const char* name, const char* what, auto measure) {
    CLI::App* command = app.add_subcommand(name, what);
    command->add_option("--repetitions", repetitions, "How often all take their turn");
    command->add_option("--json", json_file, "File for the results");
    command->callback([&, measure] { results = measure(); });
    return command;
  };
  const auto often = [&](int usual) { return repetitions > 0 ? repetitions : usual; };
  torch::set_num_threads(1);
  part("images", "Samples a second of small images", [&] {
    return measure_images(folder, often(7));
  })->add_option("--folder", folder, "Where the images lie, or are written");
  part("tokens", "Blocks of a token file against loops by hand", [&] {
    return measure_tokens(folder, often(21));
  })->add_option("--folder", folder, "Where the token file is written");
  part("cost", "What a loader costs a batch", [&] { return measure_cost(often(31)); });
  part("skip", "How long it takes to begin far inside a pass",
       [&] { return measure_skip(often(31)); });
  part("memory", "Memory of a loader over many samples", [&] { return measure_memory(); });
  CLI11_PARSE(app, argc, argv);

  publish(std::move(results), argc, argv, json_file);
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run_main("bench_data", bench::main, argc, argv); }

// How fast texts become ids. Prints JSON: the time of one pass over all lines of a text file, and
// what a peer needs to see that it did the same (python_peer/tokenizers_speed.py).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "accelerate/tokenizers.h"

namespace {

struct Settings {
  std::string tokenizer{};
  std::string text{};
  int threads = 1;
  int repetitions = 5;
};

std::vector<std::string> lines_of(const std::string& file) {
  std::ifstream stream(file);
  if (!stream) throw std::runtime_error(file + " cannot be read");
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Order and value of every id count, and every offset.
struct Checksum {
  uint64_t tokens = 0;
  uint64_t ids = 0;
  uint64_t offsets = 0;

  void add(const accelerate::Encoding& encoding) {
    constexpr uint64_t kModulus = 2'147'483'647;
    tokens += encoding.size();
    for (const int64_t id : encoding.ids) ids = (ids * 31 + static_cast<uint64_t>(id)) % kModulus;
    for (const auto& span : encoding.offsets) {
      offsets = (offsets * 31 + static_cast<uint64_t>(span.begin * 7 + span.end)) % kModulus;
    }
  }
};

nlohmann::json measure(const Settings& settings) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const auto start = Clock::now();
  auto tokenizer = accelerate::Tokenizer::from_file(settings.tokenizer);
  const double load_seconds = seconds_since(start);
  tokenizer.set_truncation(std::nullopt);
  tokenizer.set_padding(std::nullopt);

  const std::vector<std::string> lines = lines_of(settings.text);
  const std::vector<accelerate::TextPair> texts(lines.begin(), lines.end());
  size_t bytes = 0;
  for (const std::string& line : lines) bytes += line.size();
  const accelerate::BatchOptions options{.threads = settings.threads};

  Checksum checksum;
  for (const auto& encoding : tokenizer.encode_batch(texts, options)) checksum.add(encoding);
  std::vector<double> seconds;
  for (int i = 0; i < settings.repetitions; ++i) {
    const auto begin = Clock::now();
    const auto encodings = tokenizer.encode_batch(texts, options);
    seconds.push_back(seconds_since(begin));
    if (encodings.size() != lines.size()) throw std::runtime_error("encodings are missing");
  }
  std::ranges::sort(seconds);
  return {{"load_seconds", load_seconds},
          {"bytes", bytes},
          {"threads", settings.threads},
          {"p50_seconds", seconds[seconds.size() / 2]},
          {"megabytes_a_second", static_cast<double>(bytes) / 1e6 / seconds[seconds.size() / 2]},
          {"tokens", checksum.tokens},
          {"ids", checksum.ids},
          {"offsets", checksum.offsets}};
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Texts to ids: the time of one pass over all lines of a file");
  app.add_option("--tokenizer", settings.tokenizer, "a tokenizer.json")->required();
  app.add_option("--text", settings.text, "a text in lines")->required();
  app.add_option("--threads", settings.threads)->check(CLI::PositiveNumber);
  app.add_option("--repetitions", settings.repetitions)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    std::cout << measure(settings).dump(2) << '\n';
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}

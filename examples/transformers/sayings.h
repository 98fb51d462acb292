// The sayings of Debian's package fortunes: text files of one topic each, with a line "%" between
// two sayings.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

struct Saying {
  std::string text;
  int64_t topic = 0;
};

// A saying on one line: ends of lines and tabs become spaces.
inline std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    const bool space = c == '\n' || c == '\t' || c == ' ';
    if (!space) line += c;
    if (space && !line.empty() && line.back() != ' ') line += ' ';
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

// At most `limit` sayings of each topic (0: all), in the order of the files.
inline std::vector<Saying> read_sayings(const std::filesystem::path& folder,
                                        const std::vector<std::string>& topics, size_t limit = 0) {
  std::vector<Saying> sayings;
  for (size_t topic = 0; topic < topics.size(); ++topic) {
    std::ifstream file(folder / topics[topic]);
    if (!file) {
      throw std::runtime_error((folder / topics[topic]).string() +
                               " is missing: install the Debian package fortunes");
    }
    size_t count = 0;
    std::string text;
    const auto end_saying = [&] {
      std::string line = one_line(text);
      text.clear();
      if (line.empty() || (limit > 0 && count == limit)) return;
      sayings.push_back({std::move(line), static_cast<int64_t>(topic)});
      ++count;
    };
    for (std::string line; std::getline(file, line);) {
      if (line == "%") {
        end_saying();
      } else {
        text += line + '\n';
      }
    }
    end_saying();
  }
  return sayings;
}

struct SayingsSplit {
  std::vector<Saying> train;
  std::vector<Saying> test;
};

// Every fifth saying of a shuffled list is for the test. The same on every machine: the numbers of
// a std::mt19937_64 are.
inline SayingsSplit split_sayings(std::vector<Saying> sayings, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t i = sayings.size(); i > 1; --i) std::swap(sayings[i - 1], sayings[random() % i]);
  SayingsSplit split;
  for (size_t i = 0; i < sayings.size(); ++i) {
    (i % 5 == 0 ? split.test : split.train).push_back(std::move(sayings[i]));
  }
  return split;
}

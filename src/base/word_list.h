// Words in a row, for messages and scripts. Standard C++ alone: open to every room.
#pragma once

#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace accelerate {

// "a, b, c", or with another separator "a b c". `words` are texts of any kind.
template <class Words>
std::string joined(const Words& words, std::string_view separator = ", ") {
  std::string text;
  bool is_first = true;
  for (const auto& word : words) {
    if (!is_first) text += separator;
    text += word;
    is_first = false;
  }
  return text;
}

// "a", "a and b", "a, b and c"; "or" in place of "and" where that is the last argument.
template <class Words>
std::string listed(const Words& words, std::string_view last = "and") {
  std::string text;
  const size_t count = std::size(words);
  size_t place = 0;
  for (const auto& word : words) {
    if (place > 0) text += place + 1 == count ? " " + std::string(last) + " " : ", ";
    text += word;
    ++place;
  }
  return text;
}

inline std::string listed(const std::vector<int>& numbers) {
  std::vector<std::string> words;
  for (const int number : numbers) words.push_back(std::to_string(number));
  return listed(words);
}

}  // namespace accelerate

// Event files of TensorBoard read by other means than those that write them: checksums bit by bit,
// messages by hand.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace accelerate::test {

inline std::string bytes_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline uint32_t slow_masked_crc32c(const std::string& bytes) {
  uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1U ? crc >> 1U ^ 0x82f63b78U : crc >> 1U;
  }
  crc = ~crc;
  return std::rotr(crc, 15) + 0xa282ead8U;
}

template <class T>
T number_at(const std::string& bytes, size_t at) {
  T number{};
  if (at + sizeof(T) > bytes.size()) {
    ADD_FAILURE() << "the bytes end at " << bytes.size();
    return number;
  }
  std::memcpy(&number, bytes.data() + at, sizeof(T));  // tests run on little-endian machines
  return number;
}

// A message: of each field number, what stands there, in order. Varints and fixed numbers as their
// bits.
struct Message {
  std::multimap<int, uint64_t> numbers;
  std::multimap<int, std::string> texts;

  explicit Message(const std::string& bytes) {
    size_t at = 0;
    const auto varint = [&] {
      uint64_t value = 0;
      for (int shift = 0; at < bytes.size(); shift += 7) {
        const auto byte = static_cast<uint8_t>(bytes[at++]);
        value |= uint64_t{byte & 127U} << shift;
        if (byte < 128) break;
      }
      return value;
    };
    while (at < bytes.size()) {
      const uint64_t key = varint();
      const int field = static_cast<int>(key / 8);
      if (key % 8 == 0) numbers.emplace(field, varint());
      if (key % 8 == 1)
        numbers.emplace(field, number_at<uint64_t>(bytes, std::exchange(at, at + 8)));
      if (key % 8 == 5)
        numbers.emplace(field, number_at<uint32_t>(bytes, std::exchange(at, at + 4)));
      if (key % 8 == 2) {
        const uint64_t length = varint();
        texts.emplace(field, bytes.substr(at, length));
        at += length;
      }
      if (key % 8 == 3 || key % 8 == 4 || key % 8 > 5) {
        ADD_FAILURE() << "not a message";
        return;
      }
    }
  }

  bool has(int field) const { return texts.contains(field) || numbers.contains(field); }
  std::string text(int field) const {
    const auto found = texts.find(field);
    return found == texts.end() ? "" : found->second;
  }
  Message message(int field) const { return Message(text(field)); }
  uint64_t number(int field) const {
    const auto found = numbers.find(field);
    return found == numbers.end() ? 0 : found->second;
  }
  double real(int field) const { return std::bit_cast<double>(number(field)); }
  float real32(int field) const {
    return std::bit_cast<float>(static_cast<uint32_t>(number(field)));
  }
};

inline std::vector<std::string> events_of_file(const std::filesystem::path& path) {
  const std::string file = bytes_of_file(path);
  std::vector<std::string> events;
  for (size_t at = 0; at < file.size();) {
    const auto length = number_at<uint64_t>(file, at);
    EXPECT_EQ(number_at<uint32_t>(file, at + 8), slow_masked_crc32c(file.substr(at, 8)));
    const std::string event = file.substr(at + 12, length);
    EXPECT_EQ(number_at<uint32_t>(file, at + 12 + length), slow_masked_crc32c(event));
    events.push_back(event);
    at += 16 + length;
  }
  return events;
}

// A value of a summary, with where in the run it stands.
struct SummaryValue {
  double wall_time = 0;
  int64_t step = 0;
  std::string tag;
  Message value{""};
};

inline std::vector<SummaryValue> values_of_file(const std::filesystem::path& path) {
  std::vector<SummaryValue> values;
  for (const std::string& event : events_of_file(path)) {
    const Message message(event);
    for (auto [summary, end] = message.texts.equal_range(5); summary != end; ++summary) {
      const Message of_summary(summary->second);
      for (auto [value, last] = of_summary.texts.equal_range(1); value != last; ++value) {
        values.push_back({.wall_time = message.real(1),
                          .step = static_cast<int64_t>(message.number(2)),
                          .tag = Message(value->second).text(1),
                          .value = Message(value->second)});
      }
    }
  }
  return values;
}

// "tag@step=value" of the simple scalars of all event files in a folder, in the order of the names.
inline std::vector<std::string> scalars_of_folder(const std::filesystem::path& folder) {
  std::map<std::string, std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().filename().string().starts_with("events.")) {
      files[entry.path().filename().string()] = entry.path();
    }
  }
  std::vector<std::string> scalars;
  for (const auto& [name, path] : files) {
    for (const SummaryValue& value : values_of_file(path)) {
      if (!value.value.numbers.contains(2)) continue;
      std::string number = std::to_string(value.value.real32(2));
      number.resize(number.find_last_not_of('0') + 1);
      if (number.ends_with('.')) number.pop_back();
      scalars.push_back(value.tag + "@" + std::to_string(value.step) + "=" + number);
    }
  }
  return scalars;
}

}  // namespace accelerate::test

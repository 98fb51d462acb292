// What launchers say to each other: one line of text a message.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accelerate::launch {

// A name and named values, written as "name key=value key=value" with all but letters, digits and a
// few harmless characters as %XX: fit for a line, and for a shell without quotes.
class Message {
 public:
  // A line between launchers that is longer than this is no message.
  static constexpr size_t kMaxBytes = size_t{1} << 20;

  explicit Message(std::string name = "") : name_(std::move(name)) {}

  // The message in `line` (without its end), or nothing if it is none or longer than `max_bytes`.
  static std::optional<Message> decode(std::string_view line, size_t max_bytes = kMaxBytes);
  std::string encode() const;  // without a line end

  const std::string& name() const { return name_; }

  Message& set(const std::string& key, std::string value);
  Message& set(const std::string& key, int64_t value);
  Message& set(const std::string& key, const std::vector<std::string>& values);

  bool has(const std::string& key) const { return values_.count(key) != 0; }
  // "" or 0 where the key is missing; 0 where the value is not a number.
  std::string text(const std::string& key) const;
  int64_t number(const std::string& key) const;
  std::vector<std::string> texts(const std::string& key) const;

 private:
  std::string name_;
  std::map<std::string, std::string> values_;
};

}  // namespace accelerate::launch

// A section of a DeepSpeed configuration, read key by key.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/sharding/deepspeed_document.h"

namespace accelerate::config {

// The document must outlive it. Each of the readers gives `otherwise` where the key is absent, and
// throws ConfigError that names the place for another value, an "auto" that nobody filled among
// them.
class DeepspeedSection {
 public:
  // The section at `path`, "" for the top. Throws ConfigError if something else than an object is
  // there.
  DeepspeedSection(const DeepspeedDocument& document, std::string path);

  bool is_present() const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  const nlohmann::json* find(std::string_view key) const;

  bool flag(std::string_view key, bool otherwise) const;
  // 5e8 is a whole number too, as these files write it.
  int64_t integer(std::string_view key, int64_t otherwise, int64_t least = 0,
                  int64_t most = std::numeric_limits<int64_t>::max()) const;
  std::optional<int64_t> integer_if_given(std::string_view key, int64_t least) const;
  double number(std::string_view key, double otherwise, double least = 0) const;
  // One number or a list of them; empty where absent.
  std::vector<double> numbers(std::string_view key, double least = 0) const;
  std::string text(std::string_view key, const std::string& otherwise) const;
  // The position of the word among `choices`, in any case.
  size_t choice(std::string_view key, std::span<const std::string_view> choices,
                size_t otherwise) const;

  // "zero_optimization.stage"
  std::string path_of(std::string_view key) const;
  // "ds.json: zero_optimization.stage"
  std::string place_of(std::string_view key) const { return document_.place_of(path_of(key)); }
  [[noreturn]] void refuse(std::string_view key, const std::string& should_be) const;

 private:
  const DeepspeedDocument& document_;
  std::string path_;
};

}  // namespace accelerate::config

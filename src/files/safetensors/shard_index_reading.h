// The JSON of an index of shards, taken word by word.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "files/safetensors/shard_index.h"

namespace accelerate::files {

// Takes the events of nlohmann's parser, which does not recurse. Throws CheckpointError for what
// has no place in an index.
class ShardIndexEvents {
 public:
  explicit ShardIndexEvents(const std::string& where) : where_(where) {}

  // After the last event.
  ShardIndex take();

  bool null() { return value("null"); }
  bool boolean(bool /*value*/) { return value("a boolean"); }
  bool number_integer(int64_t /*value*/) { return value("a number"); }
  bool number_unsigned(uint64_t number);
  bool number_float(double number, const std::string& text);
  bool string(std::string& text);
  bool binary(nlohmann::json::binary_t& /*value*/) { return value("binary data"); }
  bool start_object(size_t size);
  bool key(std::string& name);
  bool end_object();
  bool start_array(size_t size);
  bool end_array() { return end_object(); }
  bool parse_error(size_t position, const std::string& token, const std::exception& error);

 private:
  enum class Place { kTop, kWeightMap, kMetadata, kOther };

  // A value that is no text and opens nothing.
  bool value(const char* kind);
  void add(std::string& file);
  [[noreturn]] void refuse(const std::string& what) const;

  const std::string& where_;
  uint64_t depth_ = 0;  // of open objects and arrays
  Place place_ = Place::kTop;
  std::string key_;
  ShardIndex index_;
  bool has_weight_map_ = false;
  // A name of the outermost object whose value is no text: wrong, unless there is a weight_map.
  std::optional<std::string> odd_name_;
};

}  // namespace accelerate::files

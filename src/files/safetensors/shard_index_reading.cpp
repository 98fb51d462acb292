#include "files/safetensors/shard_index_reading.h"

#include <string_view>
#include <utility>

#include "accelerate/errors.h"
#include "base/message_text.h"

namespace accelerate::files {
namespace {

// Nothing but names that go down from the folder of the index.
bool stays_inside(std::string_view file) {
  if (file.empty() || file.find('\\') != file.npos) return false;
  for (const char letter : file) {
    if (static_cast<unsigned char>(letter) < 0x20) return false;
  }
  while (true) {
    const size_t end = file.find('/');
    const std::string_view part = file.substr(0, end);
    if (part.empty() || part == "." || part == "..") return false;
    if (end == file.npos) return true;
    file.remove_prefix(end + 1);
  }
}

}  // namespace

ShardIndex ShardIndexEvents::take() {
  if (!has_weight_map_ && odd_name_) {
    refuse("the value of " + in_quotes(*odd_name_) + " is not the name of a file");
  }
  if (index_.weight_map.empty()) refuse("it names no tensor");
  for (const auto& [tensor, file] : index_.weight_map) {
    if (!stays_inside(file)) {
      refuse("the file " + in_quotes(file) + " of tensor " + in_quotes(tensor) +
             " is not a name inside the folder of the index");
    }
  }
  return std::move(index_);
}

bool ShardIndexEvents::number_unsigned(uint64_t number) {
  if (depth_ == 2 && place_ == Place::kMetadata && key_ == "total_size") {
    index_.total_size = number;
    return true;
  }
  return value("a number");
}

bool ShardIndexEvents::number_float(double number, const std::string& /*text*/) {
  // Some published files have it as "2.5e10".
  if (depth_ == 2 && place_ == Place::kMetadata && key_ == "total_size" && number >= 0 &&
      number < 0x1p63) {
    index_.total_size = static_cast<uint64_t>(number);
    return true;
  }
  return value("a number");
}

bool ShardIndexEvents::string(std::string& text) {
  if (depth_ == 0) refuse("it is a string, not an object");
  if (depth_ == 1 && key_ == "weight_map") refuse("its weight_map is a string, not an object");
  if (depth_ == 2 && place_ == Place::kWeightMap) add(text);
  // Without a weight_map the outermost object is the map.
  if (depth_ == 1 && !has_weight_map_) add(text);
  return true;
}

bool ShardIndexEvents::start_object(size_t /*size*/) {
  if (depth_ == 1) {
    place_ = Place::kOther;
    if (key_ == "weight_map") {
      if (std::exchange(has_weight_map_, true)) refuse("it has weight_map twice");
      place_ = Place::kWeightMap;
      index_.weight_map.clear();
    } else if (key_ == "metadata") {
      place_ = Place::kMetadata;
    } else if (!odd_name_) {
      odd_name_ = key_;
    }
  } else if (depth_ == 2 && place_ == Place::kWeightMap) {
    return value("an object");
  }
  ++depth_;
  return true;
}

bool ShardIndexEvents::key(std::string& name) {
  if (depth_ <= 2) key_ = std::move(name);
  return true;
}

bool ShardIndexEvents::end_object() {
  if (--depth_ == 1) place_ = Place::kTop;
  return true;
}

bool ShardIndexEvents::start_array(size_t /*size*/) {
  if (depth_ <= 2) value("an array");
  if (depth_ == 1) place_ = Place::kOther;
  ++depth_;
  return true;
}

bool ShardIndexEvents::parse_error(size_t position, const std::string& /*token*/,
                                   const std::exception& error) {
  refuse("it is not valid JSON: " + json_complaint(error, position));
}

bool ShardIndexEvents::value(const char* kind) {
  if (depth_ == 0) refuse(std::string("it is ") + kind + ", not an object");
  if (depth_ == 1 && key_ == "weight_map") {
    refuse(std::string("its weight_map is ") + kind + ", not an object");
  }
  if (depth_ == 1 && !odd_name_) odd_name_ = key_;
  if (depth_ == 2 && place_ == Place::kWeightMap) {
    refuse("the file of tensor " + in_quotes(key_) + " is " + kind + ", not a string");
  }
  return true;
}

void ShardIndexEvents::add(std::string& file) {
  if (!index_.weight_map.emplace(key_, std::move(file)).second) {
    refuse("tensor " + in_quotes(key_) + " is there twice");
  }
}

void ShardIndexEvents::refuse(const std::string& what) const {
  throw CheckpointError({.what = "this is not a valid index of model files: " + what,
                         .where = where_,
                         .hint = "save or download the model again"});
}

}  // namespace accelerate::files

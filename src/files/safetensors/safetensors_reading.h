// The JSON of a .safetensors header, taken word by word: what is not allowed is refused where it
// stands, and nothing is kept but what the header is about.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "files/safetensors/safetensors_header.h"

namespace accelerate::files {

// Takes the events of nlohmann's parser, which keeps one bit a level of nesting and so cannot
// overflow the stack. Every event that has no place in a header throws CheckpointError.
class SafetensorsEvents {
 public:
  SafetensorsEvents(SafetensorsHeader& header, const std::string& where)
      : header_(header), where_(where) {}

  bool null();
  bool boolean(bool value);
  bool number_integer(int64_t value);
  bool number_unsigned(uint64_t value);
  bool number_float(double value, const std::string& text);
  bool string(std::string& value);
  bool binary(nlohmann::json::binary_t& value);
  bool start_object(size_t size);
  bool key(std::string& name);
  bool end_object();
  bool start_array(size_t size);
  bool end_array();
  bool parse_error(size_t position, const std::string& token, const std::exception& error);

 private:
  // Where the next event belongs.
  enum class Place {
    kOutside,        // before and after the object
    kTop,            // in the object, whose keys are names
    kMetadataStart,  // after "__metadata__"
    kMetadata,       // in its object
    kInfoStart,      // after a name
    kInfo,           // in the object of a tensor
    kDtype,
    kShapeStart,
    kShape,
    kOffsetsStart,
    kOffsets,
    kUnknown,  // the value of a key that the format does not know
  };

  // One of the three keys of a tensor, once.
  void begin_field(bool& seen, Place place, const char* field);
  void finish_info();
  // The value of an unknown key that is no object and no array; false for any other place.
  bool skip_value();
  bool enter_unknown();
  bool leave_unknown();
  [[noreturn]] void refuse_value(const std::string& kind) const;
  [[noreturn]] void refuse(const std::string& what) const;

  SafetensorsHeader& header_;
  const std::string& where_;
  Place place_ = Place::kOutside;
  SafetensorsEntry entry_;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  bool has_metadata_ = false;
  int offsets_ = 0;  // of the present tensor, so far
  uint64_t unknown_depth_ = 0;
  std::string metadata_key_;
};

}  // namespace accelerate::files

#include "files/safetensors/safetensors_reading.h"

#include <string_view>
#include <utility>

#include "accelerate/errors.h"
#include "base/message_text.h"

namespace accelerate::files {
namespace {

// Tensors have a few dimensions; a header full of them would take many times its length in memory.
constexpr size_t kMaxReadDimensions = 1024;

}  // namespace

bool SafetensorsEvents::null() {
  if (!skip_value()) refuse_value("null");
  return true;
}

bool SafetensorsEvents::boolean(bool /*value*/) {
  if (!skip_value()) refuse_value("a boolean");
  return true;
}

// Only what begins with a minus comes here, "-0" too.
bool SafetensorsEvents::number_integer(int64_t value) {
  if (!skip_value())
    refuse_value("the number -" + std::to_string(0 - static_cast<uint64_t>(value)));
  return true;
}

bool SafetensorsEvents::number_unsigned(uint64_t value) {
  if (place_ == Place::kShape) {
    if (entry_.shape.size() == kMaxReadDimensions) {
      refuse("tensor " + in_quotes(entry_.name) + " has more than " +
             std::to_string(kMaxReadDimensions) + " dimensions");
    }
    entry_.shape.push_back(value);
  } else if (place_ == Place::kOffsets) {
    if (offsets_ == 2)
      refuse("tensor " + in_quotes(entry_.name) + " has more than two data_offsets");
    (offsets_ == 0 ? entry_.begin : entry_.end) = value;
    ++offsets_;
  } else if (!skip_value()) {
    refuse_value("the number " + std::to_string(value));
  }
  return true;
}

bool SafetensorsEvents::number_float(double /*value*/, const std::string& text) {
  if (!skip_value()) refuse_value("the number " + shortened(text));
  return true;
}

bool SafetensorsEvents::string(std::string& value) {
  if (place_ == Place::kDtype) {
    const auto dtype = dtype_of_name(value);
    if (!dtype)
      refuse("tensor " + in_quotes(entry_.name) + " has the unknown dtype " + in_quotes(value));
    entry_.dtype = *dtype;
    place_ = Place::kInfo;
  } else if (place_ == Place::kMetadata) {
    if (!header_.metadata.emplace(metadata_key_, std::move(value)).second) {
      refuse("the metadata have the key " + in_quotes(metadata_key_) + " twice");
    }
  } else if (!skip_value()) {
    refuse_value("a string");
  }
  return true;
}

bool SafetensorsEvents::binary(nlohmann::json::binary_t& /*value*/) { refuse_value("binary data"); }

bool SafetensorsEvents::start_object(size_t /*size*/) {
  switch (place_) {
    case Place::kOutside:
      place_ = Place::kTop;
      return true;
    case Place::kMetadataStart:
      place_ = Place::kMetadata;
      return true;
    case Place::kInfoStart:
      place_ = Place::kInfo;
      return true;
    default:
      if (!enter_unknown()) refuse_value("an object");
      return true;
  }
}

bool SafetensorsEvents::key(std::string& name) {
  if (place_ == Place::kTop) {
    if (name == "__metadata__") {
      if (std::exchange(has_metadata_, true)) refuse("the header has __metadata__ twice");
      place_ = Place::kMetadataStart;
      return true;
    }
    entry_ = {.name = std::move(name)};
    has_dtype_ = has_shape_ = has_offsets_ = false;
    place_ = Place::kInfoStart;
  } else if (place_ == Place::kMetadata) {
    metadata_key_ = std::move(name);
  } else if (place_ == Place::kInfo) {
    if (name == "dtype") {
      begin_field(has_dtype_, Place::kDtype, "dtype");
    } else if (name == "shape") {
      begin_field(has_shape_, Place::kShapeStart, "shape");
    } else if (name == "data_offsets") {
      begin_field(has_offsets_, Place::kOffsetsStart, "data_offsets");
    } else {
      place_ = Place::kUnknown;
      unknown_depth_ = 0;
    }
  }
  return true;
}

bool SafetensorsEvents::end_object() {
  switch (place_) {
    case Place::kTop:
      place_ = Place::kOutside;
      return true;
    case Place::kMetadata:
      place_ = Place::kTop;
      return true;
    case Place::kInfo:
      finish_info();
      return true;
    default:
      return leave_unknown();
  }
}

bool SafetensorsEvents::start_array(size_t /*size*/) {
  if (place_ == Place::kShapeStart) {
    place_ = Place::kShape;
  } else if (place_ == Place::kOffsetsStart) {
    place_ = Place::kOffsets;
    offsets_ = 0;
  } else if (!enter_unknown()) {
    refuse_value("an array");
  }
  return true;
}

bool SafetensorsEvents::end_array() {
  if (place_ == Place::kShape) {
    place_ = Place::kInfo;
    return true;
  }
  if (place_ == Place::kOffsets) {
    if (offsets_ != 2)
      refuse("tensor " + in_quotes(entry_.name) + " has fewer than two data_offsets");
    place_ = Place::kInfo;
    return true;
  }
  return leave_unknown();
}

bool SafetensorsEvents::parse_error(size_t position, const std::string& /*token*/,
                                    const std::exception& error) {
  refuse("its header is not valid JSON: " + json_complaint(error, position));
}

void SafetensorsEvents::begin_field(bool& seen, Place place, const char* field) {
  if (std::exchange(seen, true)) {
    refuse("tensor " + in_quotes(entry_.name) + " has " + field + " twice");
  }
  place_ = place;
}

void SafetensorsEvents::finish_info() {
  for (const auto& [seen, field] : {std::pair(has_dtype_, "dtype"), std::pair(has_shape_, "shape"),
                                    std::pair(has_offsets_, "data_offsets")}) {
    if (!seen) refuse("tensor " + in_quotes(entry_.name) + " has no " + field);
  }
  // Growing by doubling left up to half of it unused.
  entry_.shape.shrink_to_fit();
  header_.entries.push_back(std::move(entry_));
  place_ = Place::kTop;
}

bool SafetensorsEvents::skip_value() {
  if (place_ != Place::kUnknown) return false;
  if (unknown_depth_ == 0) place_ = Place::kInfo;
  return true;
}

bool SafetensorsEvents::enter_unknown() {
  if (place_ != Place::kUnknown) return false;
  ++unknown_depth_;
  return true;
}

bool SafetensorsEvents::leave_unknown() {
  if (--unknown_depth_ == 0) place_ = Place::kInfo;
  return true;
}

void SafetensorsEvents::refuse_value(const std::string& kind) const {
  switch (place_) {
    case Place::kMetadataStart:
      refuse("its __metadata__ is " + kind + ", not an object");
    case Place::kMetadata:
      refuse("the value of " + in_quotes(metadata_key_) + " in its metadata is " + kind +
             ", not a string");
    case Place::kInfoStart:
      refuse("what it says of tensor " + in_quotes(entry_.name) + " is " + kind +
             ", not an object");
    case Place::kDtype:
      refuse("the dtype of tensor " + in_quotes(entry_.name) + " is " + kind + ", not a string");
    case Place::kShapeStart:
    case Place::kShape:
      refuse("the shape of tensor " + in_quotes(entry_.name) +
             " is not a list of whole numbers: there is " + kind);
    case Place::kOffsetsStart:
    case Place::kOffsets:
      refuse("the data_offsets of tensor " + in_quotes(entry_.name) +
             " are not two whole numbers: there is " + kind);
    default:
      refuse("its header is " + kind + ", not an object");
  }
}

void SafetensorsEvents::refuse(const std::string& what) const {
  throw CheckpointError({.what = "this is not a valid safetensors file: " + what,
                         .where = where_,
                         .hint = "save or download the file again"});
}

}  // namespace accelerate::files

// Numbers and arrays of NumPy in pickles: the states of random numbers hold them.
#include <bit>
#include <cstring>

#include "files/pickle/pickle_calls.h"
#include "files/pickle/pickle_text.h"

namespace accelerate::files {
namespace {

uint64_t little_endian_number(std::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    number = number << 8U | static_cast<unsigned char>(bytes[i]);
  }
  return number;
}

bool is_known(char kind, uint64_t bytes) {
  switch (kind) {
    case 'b':
      return bytes == 1;
    case 'i':
    case 'u':
      return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
    case 'f':
      return bytes == 2 || bytes == 4 || bytes == 8;
    default:
      return false;
  }
}

}  // namespace

const PickleNumpyType& PickleCalls::numpy_type(PickleIndex index) const {
  if (const auto* type = std::get_if<PickleNumpyType>(&document_.at(index))) return *type;
  refuse("an array or a number of NumPy without a type");
}

// numpy.dtype("f8", False, True)
PickleValue PickleCalls::new_numpy_type(const std::vector<PickleIndex>& arguments) const {
  const std::string& name = text(arguments[0]);
  const bool has_width = name.size() == 2 && name[1] >= '1' && name[1] <= '8';
  if (!has_width || !is_known(name[0], static_cast<uint64_t>(name[1] - '0'))) {
    refuse("numbers of NumPy of the type '" + shown(name) + "'");
  }
  return PickleNumpyType{.kind = name[0], .bytes = static_cast<uint8_t>(name[1] - '0')};
}

// (version, byte order, …): the rest describes types that are not known here.
void PickleCalls::check_numpy_type(PickleIndex state) const {
  const std::vector<PickleIndex>& parts = tuple(state, 8, 9);
  const std::string& order = text(parts[1]);
  if (order != "<" && order != "|" && order != "=") {
    refuse("numbers of NumPy whose bytes are not in little-endian order");
  }
}

// (version, shape, type, is it column major, bytes)
void PickleCalls::fill_numpy_array(PickleNumpyArray& array, PickleIndex state) {
  const std::vector<PickleIndex>& parts = tuple(state, 5, 5);
  array.sizes = sizes(parts[1]);
  array.type = numpy_type(parts[2]);
  array.is_column_major = boolean(parts[3]);
  charge(bytes(parts[4]).size());
  array.bytes = bytes(parts[4]);
  uint64_t needed = array.type.bytes;
  bool too_large = false;
  for (const int64_t size : array.sizes) {
    too_large |= size < 0 || __builtin_mul_overflow(needed, static_cast<uint64_t>(size), &needed);
  }
  if (too_large || needed != array.bytes.size()) {
    refuse("an array of NumPy whose shape does not fit its bytes");
  }
}

PickleValue PickleCalls::numpy_scalar(const std::vector<PickleIndex>& arguments) const {
  const PickleNumpyType& type = numpy_type(arguments[0]);
  const std::string& data = bytes(arguments[1]);
  if (data.size() != type.bytes) refuse("a number of NumPy of another size than its type");
  const uint64_t number = little_endian_number(data);
  switch (type.kind) {
    case 'b':
      return number != 0;
    case 'f':
      if (type.bytes == 8) return std::bit_cast<double>(number);
      if (type.bytes == 4) return double{std::bit_cast<float>(static_cast<uint32_t>(number))};
      refuse("a number of NumPy of the type 'f2'");
    case 'u':
      if (number >> 63U != 0) return PickleBigInteger{.digits = std::to_string(number)};
      return static_cast<int64_t>(number);
    default: {
      const unsigned unused_bits = 64U - 8U * type.bytes;
      return static_cast<int64_t>(number << unused_bits) >> unused_bits;
    }
  }
}

void PickleCalls::build(PickleIndex object, PickleIndex state) {
  PickleValue& value = document_.values[object];
  if (auto* array = std::get_if<PickleBox<PickleNumpyArray>>(&value)) {
    return fill_numpy_array(**array, state);
  }
  if (std::holds_alternative<PickleNumpyType>(value)) return check_numpy_type(state);
  if (auto* record = std::get_if<PickleBox<PickleRecord>>(&value)) {
    if ((*record)->state) refuse("a state is given to an object twice");
    (*record)->state = state;
    return;
  }
  const auto* dict = std::get_if<PickleDict>(&value);
  // The attributes of an OrderedDict, such as the _metadata of a state_dict(), are left out.
  if (dict != nullptr && dict->is_ordered &&
      std::holds_alternative<PickleDict>(document_.at(state))) {
    return;
  }
  refuse("a state is given to something that has none");
}

}  // namespace accelerate::files

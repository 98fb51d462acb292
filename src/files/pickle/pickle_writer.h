// Writes pickles that torch.load(weights_only=True) takes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "files/pickle/pickle_document.h"
#include "files/pickle/pickle_opcodes.h"

namespace accelerate::files {

// Builds a pickle of protocol 2, value by value: a container is begun, its values are written, it
// is ended. Finish once with finish(). One thread at a time.
class PickleWriter {
 public:
  PickleWriter();

  void none();
  void boolean(bool value);
  void integer(int64_t value);
  // False, and nothing is written, if the text is no decimal integer or has more than 255 bytes as
  // a number.
  [[nodiscard]] bool big_integer(std::string_view digits);
  void number(double value);
  // False, and nothing is written, if it is not valid UTF-8 or longer than 4 GiB.
  [[nodiscard]] bool text(std::string_view text);
  void bytes(std::string_view bytes);
  void size(std::span<const int64_t> sizes);
  void dtype(std::string_view name);
  // "cuda:1" is of type cuda and index 1.
  void device(std::string_view type, std::optional<int64_t> index);

  void begin_list();
  void end_list();
  void begin_tuple();
  void end_tuple();
  void begin_set();
  void end_set();
  // Between them key, value, key, value.
  void begin_dict(bool is_ordered);
  void end_dict();

  // The tensor's storage is the one given here; tensor.storage is not looked at. A type of elements
  // that is not the storage's is said apart, as torch does for types without a storage class.
  void tensor(const PickleTensor& tensor, const PickleStorage& storage);

  std::string finish() &&;

 private:
  void put(PickleOpcode opcode) { pickle_.push_back(static_cast<char>(opcode)); }
  void global(const std::string& module, const std::string& name);
  void plain_text(std::string_view text);
  void integers(std::span<const int64_t> values);
  void storage(const PickleStorage& storage);

  std::string pickle_;
  std::map<std::pair<std::string, std::string>, uint32_t> globals_;  // kept in the memo
};

}  // namespace accelerate::files

#include "files/pickle/pickle_writer.h"

#include <bit>
#include <limits>

#include "files/pickle/pickle_dtypes.h"
#include "files/pickle/pickle_text.h"
#include "files/pickle/zip_format.h"

namespace accelerate::files {

using zip::append_number;
using Opcode = PickleOpcode;

PickleWriter::PickleWriter() {
  put(Opcode::kProtocol);
  append_number(pickle_, uint8_t{2});
}

std::string PickleWriter::finish() && {
  put(Opcode::kStop);
  return std::move(pickle_);
}

void PickleWriter::none() { put(Opcode::kNone); }

void PickleWriter::boolean(bool value) { put(value ? Opcode::kTrue : Opcode::kFalse); }

void PickleWriter::integer(int64_t value) {
  if (value >= 0 && value <= std::numeric_limits<uint8_t>::max()) {
    put(Opcode::kInteger8);
    append_number(pickle_, static_cast<uint8_t>(value));
  } else if (value >= std::numeric_limits<int32_t>::min() &&
             value <= std::numeric_limits<int32_t>::max()) {
    put(Opcode::kInteger32);
    append_number(pickle_, static_cast<uint32_t>(value));
  } else {
    put(Opcode::kLong8);
    append_number(pickle_, uint8_t{sizeof(value)});
    append_number(pickle_, static_cast<uint64_t>(value));
  }
}

bool PickleWriter::big_integer(std::string_view digits) {
  const std::optional<std::string> bytes = little_endian_of(digits);
  if (!bytes || bytes->size() > std::numeric_limits<uint8_t>::max()) return false;
  put(Opcode::kLong8);
  append_number(pickle_, static_cast<uint8_t>(bytes->size()));
  pickle_ += *bytes;
  return true;
}

void PickleWriter::number(double value) {
  put(Opcode::kBinaryFloat);
  const auto bits = std::bit_cast<uint64_t>(value);
  for (unsigned shift = 64; shift > 0; shift -= 8) {
    pickle_.push_back(static_cast<char>(bits >> (shift - 8) & 0xffU));
  }
}

void PickleWriter::plain_text(std::string_view text) {
  put(Opcode::kText32);
  append_number(pickle_, static_cast<uint32_t>(text.size()));
  pickle_ += text;
}

bool PickleWriter::text(std::string_view text) {
  if (text.size() > std::numeric_limits<uint32_t>::max() || !is_utf8(text)) return false;
  plain_text(text);
  return true;
}

void PickleWriter::bytes(std::string_view bytes) {
  global("_codecs", "encode");
  plain_text(latin1_text(bytes));
  plain_text("latin1");
  put(Opcode::kTuple2);
  put(Opcode::kReduce);
}

void PickleWriter::integers(std::span<const int64_t> values) {
  if (values.empty()) return put(Opcode::kEmptyTuple);
  put(Opcode::kMark);
  for (const int64_t value : values) integer(value);
  put(Opcode::kTuple);
}

void PickleWriter::size(std::span<const int64_t> sizes) {
  global("torch", "Size");
  integers(sizes);
  put(Opcode::kTuple1);
  put(Opcode::kReduce);
}

void PickleWriter::dtype(std::string_view name) { global("torch", std::string(name)); }

void PickleWriter::device(std::string_view type, std::optional<int64_t> index) {
  global("torch", "device");
  plain_text(type);
  if (index) integer(*index);
  put(index ? Opcode::kTuple2 : Opcode::kTuple1);
  put(Opcode::kReduce);
}

void PickleWriter::begin_list() {
  put(Opcode::kEmptyList);
  put(Opcode::kMark);
}

void PickleWriter::end_list() { put(Opcode::kAppends); }

void PickleWriter::begin_tuple() { put(Opcode::kMark); }

void PickleWriter::end_tuple() { put(Opcode::kTuple); }

void PickleWriter::begin_set() {
  global("__builtin__", "set");
  begin_list();
}

void PickleWriter::end_set() {
  end_list();
  put(Opcode::kTuple1);
  put(Opcode::kReduce);
}

void PickleWriter::begin_dict(bool is_ordered) {
  if (is_ordered) {
    global("collections", "OrderedDict");
    put(Opcode::kEmptyTuple);
    put(Opcode::kReduce);
  } else {
    put(Opcode::kEmptyDict);
  }
  put(Opcode::kMark);
}

void PickleWriter::end_dict() { put(Opcode::kSetItems); }

void PickleWriter::tensor(const PickleTensor& tensor, const PickleStorage& memory) {
  const bool says_dtype =
      tensor.dtype != memory.dtype || find_pickle_dtype(tensor.dtype)->storage.empty();
  global("torch._utils", says_dtype ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  put(Opcode::kMark);
  storage(memory);
  integer(tensor.offset);
  integers(tensor.sizes);
  integers(tensor.strides);
  boolean(false);                   // requires_grad
  begin_dict(/*is_ordered=*/true);  // hooks
  end_dict();
  if (says_dtype) dtype(tensor.dtype);
  if (tensor.is_conjugate || tensor.is_negative) {
    begin_dict(/*is_ordered=*/false);
    for (const auto& [name, is_set] :
         {std::pair("conj", tensor.is_conjugate), std::pair("neg", tensor.is_negative)}) {
      if (!is_set) continue;
      plain_text(name);
      boolean(true);
    }
    end_dict();
  }
  put(Opcode::kTuple);
  put(Opcode::kReduce);
}

void PickleWriter::storage(const PickleStorage& storage) {
  const PickleDtypeFacts& facts = *find_pickle_dtype(storage.dtype);
  put(Opcode::kMark);
  plain_text("storage");
  if (storage.is_untyped) {
    global("torch.storage", "UntypedStorage");
  } else {
    global("torch", std::string(facts.storage));
  }
  plain_text(storage.key);
  plain_text("cpu");
  integer(static_cast<int64_t>(storage.elements));
  put(Opcode::kTuple);
  put(Opcode::kPersistentId);
}

void PickleWriter::global(const std::string& module, const std::string& name) {
  const auto [entry, is_new] =
      globals_.emplace(std::pair(module, name), static_cast<uint32_t>(globals_.size()));
  if (!is_new) {
    put(Opcode::kGet8);
    append_number(pickle_, static_cast<uint8_t>(entry->second));
    return;
  }
  put(Opcode::kGlobal);
  pickle_ += module + "\n" + name + "\n";
  put(Opcode::kPut8);
  append_number(pickle_, static_cast<uint8_t>(entry->second));
}

}  // namespace accelerate::files

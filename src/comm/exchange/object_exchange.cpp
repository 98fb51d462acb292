#include "accelerate/detail/object_exchange.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "accelerate/detail/operands.h"
#include "accelerate/errors.h"
#include "comm/exchange/value_agreement.h"
#include "comm/groups/communicator_impl.h"

namespace accelerate::detail {
namespace {

// The lengths of a packed value's parts, and why there is none.
struct Lengths {
  int64_t header = 0;
  int64_t bytes = 0;

  // A header, then bytes from the next place on where unpack() wants them.
  int64_t first_byte() const {
    constexpr int64_t kAlignment = 64;
    return (header + kAlignment - 1) / kAlignment * kAlignment;
  }
  int64_t total() const { return first_byte() + bytes; }
};

// What is sent for one value. A rank that has none says why in place of the value.
struct ObjectMessage {
  PackedValue packed{};
  std::string problem{};
  std::string hint{};
};

ObjectMessage make_message(const std::function<PackedValue()>& make) {
  ObjectMessage message;
  try {
    message.packed = make();
  } catch (const DataError& error) {
    message.problem = error.message();
    if (!error.where().empty()) message.problem = '`' + error.where() + "`: " + message.problem;
    message.hint = error.hint();
  }
  return message;
}

Lengths lengths_of(const PackedValue& packed) {
  return {.header = static_cast<int64_t>(packed.header.size()),
          .bytes = packed.bytes.defined() ? packed.bytes.numel() : 0};
}

at::Tensor row_of(const PackedValue& packed, int64_t size) {
  const Lengths lengths = lengths_of(packed);
  at::Tensor row = at::zeros({size}, at::kByte);
  std::memcpy(row.data_ptr(), packed.header.data(), packed.header.size());
  if (lengths.bytes > 0) {
    row.narrow(0, lengths.first_byte(), lengths.bytes).copy_(packed.bytes);
  }
  return row;
}

PackedValue packed_in(const at::Tensor& row, const Lengths& lengths) {
  return {.header = std::string(static_cast<const char*>(row.data_ptr()),
                                static_cast<size_t>(lengths.header)),
          .bytes = row.narrow(0, lengths.first_byte(), lengths.bytes)};
}

// Tells all ranks of a problem and of ranks that make other calls.
void agree_on_call(Communicator& ranks, const char* operation, const std::string& name,
                   const ObjectMessage& message) {
  Operands operands(name, operation);
  operands.problem = message.problem;
  operands.hint = message.hint;
  (void)comm::agree(ranks, operands, comm::Fit::kExact);
}

}  // namespace

std::vector<PackedValue> gather_packed(Communicator& ranks, const char* operation,
                                       const std::function<PackedValue()>& make) {
  const ObjectMessage message = make_message(make);
  agree_on_call(ranks, operation, operation, message);
  const Lengths own = lengths_of(message.packed);
  std::vector<Lengths> lengths;
  int64_t longest = 0;
  for (const at::Tensor& other : ranks.all_gather(at::tensor({own.header, own.bytes}, at::kLong))) {
    lengths.push_back({.header = other[0].item<int64_t>(), .bytes = other[1].item<int64_t>()});
    longest = std::max(longest, lengths.back().total());
  }
  std::vector<PackedValue> all;
  for (const at::Tensor& row : ranks.all_gather(row_of(message.packed, longest))) {
    all.push_back(packed_in(row, lengths[all.size()]));
  }
  return all;
}

PackedValue broadcast_packed(Communicator& ranks, const char* operation, int from,
                             const std::function<PackedValue()>& make) {
  const bool is_root = ranks.rank() == from;
  const ObjectMessage message = is_root ? make_message(make) : ObjectMessage{};
  agree_on_call(ranks, operation, std::string(operation) + " from " + std::to_string(from),
                message);
  const Lengths own = lengths_of(message.packed);
  at::Tensor numbers = at::tensor({own.header, own.bytes}, at::kLong);
  ranks.broadcast(numbers, from);
  const Lengths lengths{.header = numbers[0].item<int64_t>(), .bytes = numbers[1].item<int64_t>()};
  at::Tensor row =
      is_root ? row_of(message.packed, lengths.total()) : at::empty({lengths.total()}, at::kByte);
  ranks.broadcast(row, from);
  return packed_in(row, lengths);
}

void require_rank(Communicator& ranks, const char* operation, int from) {
  comm::impl_of(ranks).require_rank(from, operation);
}

}  // namespace accelerate::detail

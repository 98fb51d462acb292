#include "accelerate/detail/dispatch_channel.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "accelerate/communicator.h"
#include "accelerate/detail/dispatch_feed.h"
#include "accelerate/errors.h"
#include "comm/groups/activity.h"

namespace accelerate::detail {
namespace {

// What rank 0 is in while the others are in the other one.
constexpr const char* kSending = "loader: a batch for the other ranks";
constexpr const char* kReceiving = "loader: next batch from rank 0";

enum class MessageKind : int64_t { kRound, kEnd, kFailure };

// What goes ahead of the data: the numbers, then the headers of all parts.
struct Announcement {
  MessageKind kind = MessageKind::kEnd;
  int64_t epoch = 0;
  int64_t index = 0;
  int64_t is_last = 0;
  int64_t size = 0;
  int64_t valid = 0;
  int64_t position = 0;
  int64_t message_bytes = 0;  // what every rank is sent: that of the longest part
};

std::string copied_bytes(const void* data, size_t size) {
  return std::string(static_cast<const char*>(data), size);
}

void append_number(std::string& text, int64_t number) {
  text += copied_bytes(&number, sizeof(number));
}

// Takes numbers and texts off the front of a message of the same program.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}
  void take(void* into, size_t size) {
    if (text_.size() < size) {
      throw CommError({.what = "a message of rank 0 to the other ranks ends too early",
                       .where = "dispatch_batches"});
    }
    std::memcpy(into, text_.data(), size);
    text_.remove_prefix(size);
  }
  int64_t number() {
    int64_t value = 0;
    take(&value, sizeof(value));
    return value;
  }
  std::string text() {
    std::string value(static_cast<size_t>(number()), '\0');
    take(value.data(), value.size());
    return value;
  }
  std::string_view rest() const { return text_; }

 private:
  std::string_view text_;
};

int64_t byte_count(const PackedValue& part) {
  return part.bytes.defined() ? part.bytes.numel() : 0;
}

// `bytes` in a tensor of `size` bytes.
at::Tensor padded(const at::Tensor& bytes, int64_t size) {
  const int64_t own = bytes.defined() ? bytes.numel() : 0;
  if (own == size && bytes.defined()) return bytes;
  at::Tensor result = at::zeros({size}, at::kByte);
  if (own > 0) result.narrow(0, 0, own).copy_(bytes);
  return result;
}

}  // namespace

void refuse_rows(const NestedPath& path, int64_t rows, int64_t samples) {
  const std::string name = path.str();
  throw DataError(
      {.what = (name.empty() ? std::string("the batch") : "`" + name + "` of the batch") + " has " +
               std::to_string(rows) + " rows, the batch has " + std::to_string(samples) +
               " samples",
       .where = "dispatch_batches",
       .hint = "give every tensor one row per sample, or give slice_fn_for_dispatch()"});
}

BatchInfo part_of(const BatchInfo& whole, int rank, int world_size) {
  BatchInfo part = whole;
  part.size = whole.size / world_size;
  part.valid = std::clamp<int64_t>(whole.valid - rank * part.size, 0, part.size);
  return part;
}

void DispatchChannel::send(const DispatchedRound& round, const std::vector<PackedValue>& parts) {
  Announcement head{.kind = MessageKind::kRound,
                    .epoch = round.info.epoch,
                    .index = round.info.index,
                    .is_last = round.info.is_last,
                    .size = round.info.size,
                    .valid = round.info.valid,
                    .position = round.position};
  for (const PackedValue& part : parts) {
    head.message_bytes = std::max(head.message_bytes, byte_count(part));
  }
  std::string message = copied_bytes(&head, sizeof(head));
  for (const PackedValue& part : parts) {
    append_number(message, byte_count(part));
    append_number(message, static_cast<int64_t>(part.header.size()));
    message += part.header;
  }
  const comm::Activity activity(*ranks_, kSending);
  ranks_->broadcast_bytes(message);
  if (head.message_bytes == 0) return;
  std::vector<at::Tensor> outgoing;
  outgoing.reserve(parts.size());
  for (const PackedValue& part : parts) outgoing.push_back(padded(part.bytes, head.message_bytes));
  at::Tensor own = at::empty({head.message_bytes}, at::kByte);
  ranks_->scatter(own, outgoing);
}

void DispatchChannel::send_end() {
  const Announcement head{.kind = MessageKind::kEnd};
  const comm::Activity activity(*ranks_, kSending);
  ranks_->broadcast_bytes(copied_bytes(&head, sizeof(head)));
}

void DispatchChannel::send_failure(const std::string& why) {
  const Announcement head{.kind = MessageKind::kFailure};
  const comm::Activity activity(*ranks_, kSending);
  ranks_->broadcast_bytes(copied_bytes(&head, sizeof(head)) + why);
}

std::optional<DispatchChannel::Received> DispatchChannel::receive() {
  const comm::Activity activity(*ranks_, kReceiving);
  const std::string message = ranks_->broadcast_bytes({});
  Cursor cursor(message);
  Announcement head;
  cursor.take(&head, sizeof(head));
  if (head.kind == MessageKind::kEnd) return std::nullopt;
  if (head.kind == MessageKind::kFailure) {
    throw DataError(
        {.what = "rank 0, which reads for all ranks, failed: " + std::string(cursor.rest()),
         .where = "dispatch_batches"});
  }
  Received received{.round = {.info = {.epoch = head.epoch,
                                       .index = head.index,
                                       .is_last = head.is_last != 0,
                                       .size = head.size,
                                       .valid = head.valid},
                              .position = head.position}};
  int64_t own_bytes = 0;
  for (int rank = 0; rank <= ranks_->rank(); ++rank) {
    own_bytes = cursor.number();
    received.part.header = cursor.text();
  }
  if (head.message_bytes > 0) {
    at::Tensor bytes = at::empty({head.message_bytes}, at::kByte);
    ranks_->scatter(bytes, {});
    received.part.bytes = bytes.narrow(0, 0, own_bytes);
  } else {
    received.part.bytes = at::empty({0}, at::kByte);
  }
  return received;
}

}  // namespace accelerate::detail

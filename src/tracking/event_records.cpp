#include "tracking/event_records.h"

#include <algorithm>
#include <cmath>

#include "tracking/crc32c.h"
#include "tracking/little_endian.h"
#include "tracking/protobuf.h"

namespace accelerate::tracking {
namespace {

// The numbers of the fields are those of TensorFlow's event.proto, summary.proto, tensor.proto and
// of TensorBoard's plugin_data.proto for hparams.
constexpr uint32_t kEventWallTime = 1;
constexpr uint32_t kEventStep = 2;
constexpr uint32_t kEventSummary = 5;
constexpr uint32_t kSummaryValue = 1;
constexpr uint32_t kValueTag = 1;

enum class TensorType : uint64_t { kFloat = 1, kDouble = 2, kString = 7 };
enum class HparamType : uint64_t { kString = 1, kFloat64 = 3 };

ProtobufMessage event_at(const EventStamp& stamp) {
  ProtobufMessage event;
  event.real(kEventWallTime, stamp.wall_time);
  if (stamp.step != 0) event.integer(kEventStep, stamp.step);
  return event;
}

std::string event_with(const EventStamp& stamp, const ProtobufMessage& value) {
  return event_at(stamp)
      .message(kEventSummary, ProtobufMessage().message(kSummaryValue, value))
      .bytes();
}

ProtobufMessage value_of(std::string_view tag) {
  ProtobufMessage value;
  value.text(kValueTag, tag);
  return value;
}

// SummaryMetadata for one of TensorBoard's plugins.
ProtobufMessage plugin_metadata(std::string_view plugin, const ProtobufMessage* content = nullptr) {
  ProtobufMessage data;
  data.text(1, plugin);
  if (content != nullptr) data.message(2, *content);
  return ProtobufMessage().message(1, data);
}

std::string hparams_event(const EventStamp& stamp, std::string_view tag,
                          const ProtobufMessage& content) {
  ProtobufMessage value = value_of(tag);
  value.message(9, plugin_metadata("hparams", &content));
  return event_with(stamp, value);
}

const TrackedGroup* as_group(const NamedValue& hparam) { return hparam.value.group(); }

}  // namespace

std::string version_event(double wall_time) {
  return ProtobufMessage()
      .real(kEventWallTime, wall_time)
      .text(3, "brain.Event:2")
      .message(10, ProtobufMessage().text(1, "tensorboard.summary.writer.event_file_writer"))
      .bytes();
}

std::string session_start_event(const EventStamp& stamp) {
  return event_at(stamp).message(7, ProtobufMessage().varint(1, 1)).bytes();
}

std::string scalar_event(const EventStamp& stamp, std::string_view tag, double value,
                         ScalarKind kind) {
  ProtobufMessage entry = value_of(tag);
  if (kind == ScalarKind::kSimple) {
    entry.real32(2, static_cast<float>(value));
    return event_with(stamp, entry);
  }
  ProtobufMessage tensor;
  if (kind == ScalarKind::kFloatTensor) {
    tensor.varint(1, static_cast<uint64_t>(TensorType::kFloat));
    tensor.packed32(5, static_cast<float>(value));
  } else {
    tensor.varint(1, static_cast<uint64_t>(TensorType::kDouble));
    tensor.packed(6, std::span(&value, 1));
  }
  entry.message(8, tensor);
  entry.message(9, plugin_metadata("scalars"));
  return event_with(stamp, entry);
}

std::string text_event(const EventStamp& stamp, std::string_view tag, std::string_view text) {
  const ProtobufMessage one_text =
      ProtobufMessage().message(2, ProtobufMessage().varint(1, 1));  // a dimension of size 1
  ProtobufMessage tensor;
  tensor.varint(1, static_cast<uint64_t>(TensorType::kString));
  tensor.message(2, one_text);
  tensor.text(8, text);
  ProtobufMessage entry = value_of(std::string(tag) + "/text_summary");
  entry.message(8, tensor);
  entry.message(9, plugin_metadata("text"));
  return event_with(stamp, entry);
}

std::string image_event(const EventStamp& stamp, std::string_view tag, const TrackedImage& size,
                        std::string_view png) {
  ProtobufMessage image;
  image.integer(1, size.height).integer(2, size.width).integer(3, size.channels).text(4, png);
  ProtobufMessage entry = value_of(tag);
  entry.message(4, image);
  return event_with(stamp, entry);
}

std::string histogram_event(const EventStamp& stamp, const TrackedHistogram& histogram) {
  ProtobufMessage buckets;
  buckets.real(1, histogram.min).real(2, histogram.max).real(3, histogram.count);
  buckets.real(4, histogram.sum).real(5, histogram.sum_of_squares);
  buckets.packed(6, histogram.limits).packed(7, histogram.counts);
  ProtobufMessage entry = value_of(histogram.name);
  entry.message(5, buckets);
  return event_with(stamp, entry);
}

std::string hparams_experiment_event(const EventStamp& stamp, const TrackerConfig& hparams,
                                     const std::vector<std::string>& metrics) {
  ProtobufMessage experiment;
  for (const NamedValue& hparam : hparams) {
    if (as_group(hparam) != nullptr) continue;
    const HparamType type =
        hparam.value.text() != nullptr ? HparamType::kString : HparamType::kFloat64;
    experiment.message(
        4, ProtobufMessage().text(1, hparam.name).varint(4, static_cast<uint64_t>(type)));
  }
  for (const std::string& metric : metrics) {
    experiment.message(5, ProtobufMessage().message(1, ProtobufMessage().text(2, metric)));
  }
  return hparams_event(stamp, "_hparams_/experiment", ProtobufMessage().message(2, experiment));
}

std::string hparams_start_event(const EventStamp& stamp, const TrackerConfig& hparams) {
  ProtobufMessage session;
  for (const NamedValue& hparam : hparams) {
    if (as_group(hparam) != nullptr) continue;
    ProtobufMessage value;
    if (const std::string* text = hparam.value.text()) {
      value.text(3, *text);
    } else {
      value.real(2, *hparam.value.number());
    }
    session.message(1, ProtobufMessage().text(1, hparam.name).message(2, value));
  }
  return hparams_event(stamp, "_hparams_/session_start_info",
                       ProtobufMessage().message(3, session));
}

std::string hparams_end_event(const EventStamp& stamp) {
  return hparams_event(stamp, "_hparams_/session_end_info",
                       ProtobufMessage().message(4, ProtobufMessage().varint(1, 1)));
}

void append_record(std::string& file, std::string_view event) {
  std::string length;
  append_little_endian(length, uint64_t{event.size()});
  file += length;
  append_little_endian(file, masked_crc32c(length));
  file += event;
  append_little_endian(file, masked_crc32c(event));
}

std::optional<std::string_view> RecordReader::next() {
  constexpr size_t kHead = 12;
  constexpr size_t kTail = 4;
  if (rest_.size() < kHead + kTail) return std::nullopt;
  const auto length = read_little_endian<uint64_t>(rest_);
  const auto length_crc = read_little_endian<uint32_t>(rest_.substr(8));
  if (length_crc != masked_crc32c(rest_.substr(0, 8))) return std::nullopt;
  if (length > rest_.size() - kHead - kTail) return std::nullopt;
  const std::string_view event = rest_.substr(kHead, length);
  if (read_little_endian<uint32_t>(rest_.substr(kHead + length)) != masked_crc32c(event)) {
    return std::nullopt;
  }
  rest_.remove_prefix(kHead + length + kTail);
  return event;
}

namespace {

bool is_cut(std::string_view value, int64_t step, const StepCuts& cuts) {
  ProtobufReader reader(value);
  while (const auto field = reader.next()) {
    if (field->number != kValueTag || field->type != WireType::kBytes) continue;
    return std::ranges::any_of(
        cuts, [&](const auto& cut) { return cut.first == field->bytes && step >= cut.second; });
  }
  return false;
}

// The summary without what is cut; nothing if all of it stays.
std::optional<ProtobufMessage> cut_summary(std::string_view summary, int64_t step,
                                           const StepCuts& cuts) {
  ProtobufMessage kept;
  bool changed = false;
  ProtobufReader reader(summary);
  while (const auto field = reader.next()) {
    const bool is_value = field->number == kSummaryValue && field->type == WireType::kBytes;
    if (is_value && is_cut(field->bytes, step, cuts)) {
      changed = true;
    } else {
      kept.raw(field->with_key);
    }
  }
  if (!changed || !reader.valid()) return std::nullopt;
  return kept;
}

// The event without what is cut, empty if nothing is left of it; nothing if all of it stays.
std::optional<std::string> cut_event(std::string_view event, const StepCuts& cuts) {
  int64_t step = 0;
  ProtobufReader steps(event);
  while (const auto field = steps.next()) {
    if (field->number == kEventStep) step = static_cast<int64_t>(field->value);
  }
  if (!steps.valid()) return std::nullopt;
  ProtobufMessage kept;
  bool changed = false;
  ProtobufReader reader(event);
  while (const auto field = reader.next()) {
    const bool is_summary = field->number == kEventSummary && field->type == WireType::kBytes;
    const auto summary = is_summary ? cut_summary(field->bytes, step, cuts) : std::nullopt;
    if (!summary) {
      kept.raw(field->with_key);
      continue;
    }
    changed = true;
    if (summary->empty()) return std::string();
    kept.message(kEventSummary, *summary);
  }
  if (!changed) return std::nullopt;
  return kept.bytes();
}

}  // namespace

std::optional<std::string> without_steps(std::string_view file, const StepCuts& cuts) {
  std::string kept;
  bool changed = false;
  RecordReader reader(file);
  while (const auto event = reader.next()) {
    const auto cut = cut_event(*event, cuts);
    if (cut) changed = true;
    if (!cut) append_record(kept, *event);
    if (cut && !cut->empty()) append_record(kept, *cut);
  }
  if (!changed) return std::nullopt;
  return kept;
}

}  // namespace accelerate::tracking

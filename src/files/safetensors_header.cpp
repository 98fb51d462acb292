#include "files/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>

#include "accelerate/errors.h"
#include "files/json_text.h"
#include "files/safetensors_reading.h"

namespace accelerate::files {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMostOfInt64 = std::numeric_limits<int64_t>::max();

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw CheckpointError({.what = "this is no valid safetensors file: " + what,
                         .where = where,
                         .hint = "save or download the file again"});
}

uint64_t little_endian(std::span<const std::byte, kLengthBytes> bytes) {
  uint64_t value = 0;
  for (size_t i = kLengthBytes; i-- > 0;) value = value << 8 | std::to_integer<uint64_t>(bytes[i]);
  return value;
}

std::string_view header_text(std::span<const std::byte> file, const std::string& where) {
  if (file.size() < kLengthBytes) {
    refuse(where, "it has " + std::to_string(file.size()) + " bytes, its first 8 are its length");
  }
  const uint64_t length = little_endian(file.first<kLengthBytes>());
  if (length > kMaxSafetensorsHeader) {
    refuse(where, "its header would have " + std::to_string(length) + " bytes, at most " +
                      std::to_string(kMaxSafetensorsHeader) + " are allowed");
  }
  if (length > file.size() - kLengthBytes) {
    refuse(where, "its header would have " + std::to_string(length) + " bytes, " +
                      std::to_string(file.size() - kLengthBytes) + " are there");
  }
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes as text
  return {reinterpret_cast<const char*>(file.data()) + kLengthBytes, length};
}

void check_names(const std::vector<SafetensorsEntry>& entries, const std::string& where) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const SafetensorsEntry& entry : entries) names.emplace_back(entry.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) refuse(where, "tensor " + in_quotes(*twice) + " is there twice");
}

void check_ranges(const std::vector<SafetensorsEntry>& entries, uint64_t data_bytes,
                  const std::string& where) {
  uint64_t reached = 0;
  for (const SafetensorsEntry& entry : entries) {
    const std::string range = "[" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) +
                              "] of tensor " + in_quotes(entry.name);
    if (entry.begin > entry.end) refuse(where, "the range " + range + " ends before it begins");
    if (entry.begin > reached) {
      refuse(where, "there is a hole of " + std::to_string(entry.begin - reached) +
                        " bytes before the range " + range);
    }
    if (entry.begin < reached) refuse(where, "another tensor has a part of the range " + range);
    if (entry.end > data_bytes) {
      refuse(where, "the range " + range + " ends behind the file, which has " +
                        std::to_string(data_bytes) + " bytes of data");
    }
    reached = entry.end;
  }
  if (reached != data_bytes) {
    refuse(where, std::to_string(data_bytes - reached) + " bytes at its end belong to no tensor");
  }
}

void check_shape(const SafetensorsEntry& entry, const std::string& where) {
  const auto too_large = [](uint64_t size) { return size > kMostOfInt64; };
  if (std::any_of(entry.shape.begin(), entry.shape.end(), too_large)) {
    refuse(where, "tensor " + in_quotes(entry.name) + " has a dimension larger than 2^63 - 1");
  }
  const auto bytes = tensor_bytes(entry.dtype, entry.shape);
  if (!bytes) {
    refuse(where, "shape and dtype of tensor " + in_quotes(entry.name) +
                      " give a number of bytes that is not whole or beyond 2^64");
  }
  if (entry.begin <= entry.end && *bytes != entry.end - entry.begin) {
    refuse(where, "tensor " + in_quotes(entry.name) + " has " +
                      std::to_string(entry.end - entry.begin) +
                      " bytes, its shape and dtype need " + std::to_string(*bytes));
  }
}

void append_number_list(std::string& text, std::span<const uint64_t> numbers) {
  text += '[';
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(numbers[i]);
  }
  text += ']';
}

// In quotes, with the escapes of JSON.
std::string json_string(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    throw UsageError({.what = "the name or metadata text " + in_quotes(text) +
                              " is not UTF-8, which safetensors files need",
                      .hint = "rename it"});
  }
}

std::string header_json(const std::vector<SafetensorsEntry>& entries,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += R"("__metadata__":{)";
    for (const auto& [key, value] : metadata) {
      text += json_string(key) + ':' + json_string(value) + ',';
    }
    text.back() = '}';
    text += ',';
  }
  for (const SafetensorsEntry& entry : entries) {
    text += json_string(entry.name) + R"(:{"dtype":")";
    text += dtype_name(entry.dtype);
    text += R"(","shape":)";
    append_number_list(text, entry.shape);
    text += R"(,"data_offsets":)";
    append_number_list(text, std::array{entry.begin, entry.end});
    text += "},";
  }
  if (text.size() > 1) text.pop_back();
  return text + '}';
}

}  // namespace

std::optional<uint64_t> tensor_bytes(TensorDtype dtype, std::span<const uint64_t> shape) {
  uint64_t bits = dtype_bits(dtype);
  // The format's own reader counts the elements first, so an overflow before a 0 is one.
  uint64_t elements = 1;
  for (const uint64_t size : shape) {
    if (__builtin_mul_overflow(elements, size, &elements)) return std::nullopt;
  }
  if (__builtin_mul_overflow(elements, bits, &bits)) return std::nullopt;
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           const std::string& where) {
  const std::string_view text = header_text(file, where);
  // The parser would skip a byte order mark and white space before the object.
  if (!text.starts_with('{')) refuse(where, "its header does not begin with {");
  // The parser would take it for the end of the text.
  if (text.find('\0') != text.npos) refuse(where, "its header has a byte 0");

  SafetensorsHeader header;
  SafetensorsEvents events(header, where);
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);

  header.data_begin = kLengthBytes + text.size();
  for (const SafetensorsEntry& entry : header.entries) check_shape(entry, where);
  check_names(header.entries, where);
  std::sort(header.entries.begin(), header.entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  check_ranges(header.entries, file.size() - header.data_begin, where);
  return header;
}

uint64_t SafetensorsLayout::file_bytes() const {
  return header.size() + (entries.empty() ? 0 : entries.back().end);
}

SafetensorsLayout lay_out_safetensors(std::vector<SafetensorsEntry> entries,
                                      const std::map<std::string, std::string>& metadata) {
  std::sort(entries.begin(), entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(b.dtype, a.name) < std::tie(a.dtype, b.name);
            });
  uint64_t reached = 0;
  for (SafetensorsEntry& entry : entries) {
    const auto bytes = tensor_bytes(entry.dtype, entry.shape);
    if (!bytes) {
      throw UsageError({.what = "tensor " + in_quotes(entry.name) +
                                " does not fill whole bytes, it has no place in a safetensors file",
                        .hint = "pad its last dimension"});
    }
    if (entry.name == "__metadata__") {
      throw UsageError({.what = "a tensor of a safetensors file cannot be called __metadata__",
                        .hint = "rename it"});
    }
    entry.begin = reached;
    entry.end = reached += *bytes;
  }
  std::vector<std::string_view> names;
  for (const SafetensorsEntry& entry : entries) names.emplace_back(entry.name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    throw UsageError({.what = "two tensors are called " + in_quotes(*twice), .hint = "rename one"});
  }

  std::string json = header_json(entries, metadata);
  json.append((kLengthBytes - json.size() % kLengthBytes) % kLengthBytes, ' ');
  if (json.size() > kMaxSafetensorsHeader) {
    throw UsageError({.what = "the names and metadata of " + std::to_string(entries.size()) +
                              " tensors make a header of " + std::to_string(json.size()) +
                              " bytes, readers of safetensors files take at most " +
                              std::to_string(kMaxSafetensorsHeader),
                      .hint = "write several files"});
  }
  std::string header;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    header += static_cast<char>(json.size() >> (8 * i) & 0xff);
  }
  return {.header = header + json, .entries = std::move(entries)};
}

}  // namespace accelerate::files

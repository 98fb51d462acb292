#include "files/safetensors/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <tuple>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "files/safetensors/safetensors_reading.h"
#include "files/safetensors/safetensors_scanner.h"

namespace accelerate::files {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMostOfInt64 = std::numeric_limits<int64_t>::max();

[[noreturn]] void refuse_header(const std::string& where, const std::string& what) {
  throw CheckpointError({.what = "this is not a valid safetensors file: " + what,
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
    refuse_header(where,
                  "it has " + std::to_string(file.size()) + " bytes, its first 8 are its length");
  }
  const uint64_t length = little_endian(file.first<kLengthBytes>());
  if (length > kMaxSafetensorsHeader) {
    refuse_header(where, "its header would have " + std::to_string(length) + " bytes, at most " +
                             std::to_string(kMaxSafetensorsHeader) + " are allowed");
  }
  if (length > file.size() - kLengthBytes) {
    refuse_header(where, "its header would have " + std::to_string(length) + " bytes, " +
                             std::to_string(file.size() - kLengthBytes) + " are there");
  }
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes as text
  return {reinterpret_cast<const char*>(file.data()) + kLengthBytes, length};
}

// The positions of the entries in the order of their names. Files are ordered by type, then by
// name, as a rule: runs that are in order already are found and merged.
std::vector<uint32_t> positions_by_name(const std::vector<SafetensorsEntry>& entries) {
  const auto precedes = [&](uint32_t a, uint32_t b) { return entries[a].name < entries[b].name; };
  std::vector<uint32_t> positions(entries.size());
  std::iota(positions.begin(), positions.end(), 0U);
  std::vector<std::ptrdiff_t> ends;  // of the runs
  for (auto at = positions.begin(); at != positions.end();) {
    at = std::is_sorted_until(at, positions.end(), precedes);
    ends.push_back(at - positions.begin());
  }
  std::vector<uint32_t> merged(ends.size() > 1 ? positions.size() : 0);
  while (ends.size() > 1) {
    std::vector<std::ptrdiff_t> merged_ends;
    for (size_t i = 0; i < ends.size(); i += 2) {
      const std::ptrdiff_t begin = i == 0 ? 0 : ends[i - 1];
      const std::ptrdiff_t end = ends[std::min(i + 1, ends.size() - 1)];
      const auto middle = positions.begin() + ends[i];
      std::merge(positions.begin() + begin, middle, middle, positions.begin() + end,
                 merged.begin() + begin, precedes);
      merged_ends.push_back(end);
    }
    positions.swap(merged);
    ends = std::move(merged_ends);
  }
  return positions;
}

void check_names(const SafetensorsHeader& header, const std::string& where) {
  const auto same = [&](uint32_t a, uint32_t b) {
    return header.entries[a].name == header.entries[b].name;
  };
  const auto twice = std::adjacent_find(header.by_name.begin(), header.by_name.end(), same);
  if (twice == header.by_name.end()) return;
  refuse_header(where, "tensor " + in_quotes(header.entries[*twice].name) + " is there twice");
}

void check_ranges(const std::vector<SafetensorsEntry>& entries, uint64_t data_bytes,
                  const std::string& where) {
  uint64_t reached = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin == reached && entry.end >= reached && entry.end <= data_bytes) {
      reached = entry.end;
      continue;
    }
    const std::string range = "[" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) +
                              "] of tensor " + in_quotes(entry.name);
    if (entry.begin > entry.end)
      refuse_header(where, "the range " + range + " ends before it begins");
    if (entry.begin > reached) {
      refuse_header(where, "there is a hole of " + std::to_string(entry.begin - reached) +
                               " bytes before the range " + range);
    }
    if (entry.begin < reached)
      refuse_header(where, "another tensor has a part of the range " + range);
    refuse_header(where, "the range " + range + " ends beyond the file, which has " +
                             std::to_string(data_bytes) + " bytes of data");
  }
  if (reached != data_bytes) {
    refuse_header(where,
                  std::to_string(data_bytes - reached) + " bytes at its end belong to no tensor");
  }
}

void check_shape(const SafetensorsEntry& entry, const std::string& where) {
  const auto too_large = [](uint64_t size) { return size > kMostOfInt64; };
  if (std::any_of(entry.shape.begin(), entry.shape.end(), too_large)) {
    refuse_header(where,
                  "tensor " + in_quotes(entry.name) + " has a dimension larger than 2^63 - 1");
  }
  const auto bytes = tensor_bytes(entry.dtype, entry.shape);
  if (!bytes) {
    refuse_header(where, "shape and dtype of tensor " + in_quotes(entry.name) +
                             " give a number of bytes that is not whole or beyond 2^64");
  }
  if (entry.begin <= entry.end && *bytes != entry.end - entry.begin) {
    refuse_header(where, "tensor " + in_quotes(entry.name) + " has " +
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
                              " is not valid UTF-8, which safetensors files need",
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
  if (!text.starts_with('{')) refuse_header(where, "its header does not begin with {");
  // The parser would take it for the end of the text.
  if (text.find('\0') != text.npos) refuse_header(where, "its header has a byte 0");

  SafetensorsHeader header;
  if (!scan_safetensors_header(text, header)) {
    header = {};
    SafetensorsEvents events(header, where);
    nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  }

  header.data_begin = kLengthBytes + text.size();
  for (const SafetensorsEntry& entry : header.entries) check_shape(entry, where);
  const auto precedes = [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  };
  if (!std::is_sorted(header.entries.begin(), header.entries.end(), precedes)) {
    std::sort(header.entries.begin(), header.entries.end(), precedes);
  }
  header.by_name = positions_by_name(header.entries);
  check_names(header, where);
  check_ranges(header.entries, file.size() - header.data_begin, where);
  return header;
}

std::optional<size_t> find_entry(const SafetensorsHeader& header, std::string_view name) {
  const auto precedes = [&](uint32_t position, std::string_view wanted) {
    return header.entries[position].name < wanted;
  };
  const auto found = std::lower_bound(header.by_name.begin(), header.by_name.end(), name, precedes);
  if (found == header.by_name.end() || header.entries[*found].name != name) return std::nullopt;
  return *found;
}

std::map<std::string, std::string> aliases_of(const SafetensorsHeader& header) {
  std::map<std::string, std::string> aliases;
  for (const auto& [key, value] : header.metadata) {
    if (key != "format" && find_entry(header, value) && !find_entry(header, key)) {
      aliases.emplace(key, value);
    }
  }
  return aliases;
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

// A safetensors file is refused with a CheckpointError, or its tensors are exactly the bytes that
// are there; what was read can be written, and reads the same again. Cut anywhere, it is refused.
// The fast scanner takes no header that the strict reader refuses, and finds the same in it.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "accelerate/errors.h"
#include "check.h"
#include "files/safetensors/safetensors_header.h"
#include "files/safetensors/safetensors_reading.h"
#include "files/safetensors/safetensors_scanner.h"

namespace {

using namespace accelerate::files;  // NOLINT(google-build-using-namespace): a small program

std::optional<SafetensorsHeader> parse(std::span<const std::byte> file) {
  try {
    return parse_safetensors_header(file, "file");
  } catch (const accelerate::CheckpointError& error) {
    FUZZ_CHECK(!error.message().empty() && error.message().size() < 1000);
    FUZZ_CHECK(error.where() == "file" && !error.hint().empty());
    return std::nullopt;
  }
}

void check_entries(const SafetensorsHeader& header, size_t size) {
  FUZZ_CHECK(header.data_begin <= size);
  uint64_t reached = 0;
  std::set<std::string> names;
  for (const SafetensorsEntry& entry : header.entries) {
    FUZZ_CHECK(entry.begin == reached && entry.end >= entry.begin);
    FUZZ_CHECK(tensor_bytes(entry.dtype, entry.shape) == entry.end - entry.begin);
    FUZZ_CHECK(names.insert(entry.name).second);
    reached = entry.end;
  }
  FUZZ_CHECK(header.data_begin + reached == size);
}

void check_written_again(const SafetensorsHeader& header) {
  const SafetensorsLayout layout = lay_out_safetensors(header.entries, header.metadata);
  const std::string file =
      layout.header + std::string(layout.file_bytes() - layout.header.size(), '\0');
  const auto again = parse(std::as_bytes(std::span(file)));
  FUZZ_CHECK(again && again->metadata == header.metadata);
  FUZZ_CHECK(again->entries.size() == header.entries.size());
  for (const SafetensorsEntry& entry : header.entries) {
    bool is_there = false;
    for (const SafetensorsEntry& other : again->entries) {
      is_there |=
          other.name == entry.name && other.dtype == entry.dtype && other.shape == entry.shape;
    }
    FUZZ_CHECK(is_there);
  }
}

bool same_entry(const SafetensorsEntry& a, const SafetensorsEntry& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.begin == b.begin &&
         a.end == b.end;
}

void check_scanner(std::string_view text) {
  SafetensorsHeader fast;
  if (!text.starts_with('{') || text.find('\0') != text.npos) return;
  if (!scan_safetensors_header(text, fast)) return;
  SafetensorsHeader strict;
  const std::string where = "file";
  SafetensorsEvents events(strict, where);  // throws for what it refuses: that ends the program
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  FUZZ_CHECK(fast.metadata == strict.metadata);
  FUZZ_CHECK(std::equal(fast.entries.begin(), fast.entries.end(), strict.entries.begin(),
                        strict.entries.end(), same_entry));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes as text
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (size > 8) check_scanner(text.substr(8));
  const auto header = parse(file);
  if (!header) return 0;
  check_entries(*header, size);
  if (header->entries.size() < 50) check_written_again(*header);
  for (size_t length = 0; length < size && size < 500; ++length) {
    FUZZ_CHECK(!parse(file.first(length)));
  }
  return 0;
}

// A manifest is refused with a CheckpointError, or it keeps every rule and reads the same after it
// was written again. The first byte of the input chooses: 0 the bytes as they are, 1 with the right
// checksum at their end, 2 the records of a rank.
#include <optional>
#include <span>
#include <string>

#include "accelerate/errors.h"
#include "check.h"
#include "files/manifest/manifest.h"
#include "files/manifest/manifest_format.h"

namespace {

using namespace accelerate::files;  // NOLINT(google-build-using-namespace): a small program

template <typename Parse>
auto parsed(Parse parse) -> std::optional<decltype(parse())> {
  try {
    return parse();
  } catch (const accelerate::CheckpointError& error) {
    FUZZ_CHECK(!error.message().empty() && error.message().size() < 400);
    FUZZ_CHECK(error.where() == "file" && !error.hint().empty());
    for (const char c : error.message()) FUZZ_CHECK(static_cast<unsigned char>(c) >= ' ');
    return std::nullopt;
  }
}

void check_files(std::span<const FileRecord> files) {
  for (const FileRecord& file : files) {
    FUZZ_CHECK(is_plain_name(file.name) && file.name.find("..") != 0);
    FUZZ_CHECK(file.name.find('/') == std::string::npos);
    uint64_t end = 0;
    for (const PartRecord& part : file.parts) {
      FUZZ_CHECK(part.offset >= end && part.offset <= file.bytes);
      FUZZ_CHECK(part.bytes <= file.bytes - part.offset);
      end = part.offset + part.bytes;
    }
  }
}

void check_manifest_bytes(const std::string& text) {
  const auto manifest = parsed([&] { return parse_manifest(text, "file"); });
  if (!manifest) return;
  FUZZ_CHECK(manifest->world_size >= 1 && manifest->step >= 0 && manifest->state.is_object());
  check_files(manifest->files);
  FUZZ_CHECK(parse_manifest(manifest_text(*manifest), "file") == *manifest);
}

void check_records_bytes(const std::string& text) {
  const auto records = parsed([&] { return parse_records(text, "file"); });
  if (!records) return;
  check_files(*records);
  FUZZ_CHECK(parse_records(records_text(*records), "file") == *records);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 0) check_manifest_bytes(text);
  if (data[0] == 1) check_manifest_bytes(text + manifest_tail(text));
  if (data[0] == 2) check_records_bytes(text);
  return 0;
}

// An index is refused with a CheckpointError, or all its files have names inside the folder; what
// was read can be written, and reads the same again.
#include <filesystem>
#include <string>

#include "accelerate/errors.h"
#include "check.h"
#include "files/safetensors/shard_index.h"

namespace {

bool leaves_the_folder(const std::string& file) {
  const std::filesystem::path path(file);
  if (path.is_absolute() || file.find('\0') != file.npos) return true;
  const std::filesystem::path normal = path.lexically_normal();
  return normal.empty() || *normal.begin() == "..";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using accelerate::files::parse_shard_index;
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes as text
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto index = parse_shard_index(text, "file");
    FUZZ_CHECK(!index.weight_map.empty());
    for (const auto& [tensor, file] : index.weight_map) FUZZ_CHECK(!leaves_the_folder(file));
    const auto again = parse_shard_index(accelerate::files::shard_index_text(index), "file");
    FUZZ_CHECK(again.weight_map == index.weight_map && again.total_size == index.total_size);
  } catch (const accelerate::CheckpointError& error) {
    FUZZ_CHECK(!error.message().empty() && error.message().size() < 1000);
    FUZZ_CHECK(error.where() == "file" && !error.hint().empty());
  }
  return 0;
}

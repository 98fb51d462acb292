// What a checkpoint holds: the description that is written into its directory last, as
// manifest.json. docs/checkpoints.md has the format byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/durable/file_record.h"

namespace accelerate::files {

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr int kManifestVersion = 1;
// A longer manifest is neither written nor read. A tensor takes about 150 bytes.
inline constexpr size_t kMaxManifestBytes = size_t{64} << 20;

struct Manifest {
  std::string library_version{};
  int64_t world_size = 1;  // ranks that wrote it
  int64_t step = 0;        // optimizer steps done
  int64_t created = 0;     // seconds since 1970, UTC; 0 is filled in by CheckpointWriter::commit()
  // Whatever the library needs to know before it opens the first file. An object.
  nlohmann::json state = nlohmann::json::object();
  std::vector<FileRecord> files{};

  bool operator==(const Manifest&) const = default;
};

// The bytes of manifest.json. Throws CheckpointError if the manifest breaks a rule that the reader
// checks (a name, a part outside of its file, two files of one name, a state that is no object).
std::string manifest_text(const Manifest& manifest);

// Reads the bytes of a manifest.json. Strict: every key is known and of its type, nothing is
// missing, no key appears twice, the checksum of the manifest itself fits, names are plain, parts
// lie inside their files. Throws CheckpointError that names `where` for anything else. Never
// allocates more than a small multiple of the size of `text`.
Manifest parse_manifest(std::string_view text, const std::filesystem::path& where);

// The records of the files that one rank has written, as one line of text for rank 0, and back.
// The reader is as strict as that of the manifest; `where` names the sender in errors.
std::string records_text(std::span<const FileRecord> records);
std::vector<FileRecord> parse_records(std::string_view text, const std::string& where);

}  // namespace accelerate::files

// The rules that every manifest keeps, whoever wrote it.
#pragma once

#include <string>

#include "files/manifest/manifest.h"

namespace accelerate::files {

// JSON inside a manifest is nested at most so deep.
inline constexpr int kMaxManifestDepth = 64;

// Throws CheckpointError, which names `where`, for the first rule that is broken.
void check_manifest(const Manifest& manifest, const std::string& where);
void check_records(std::span<const FileRecord> records, const std::string& where);

[[noreturn]] void refuse_manifest(const std::string& what, const std::string& where);

}  // namespace accelerate::files

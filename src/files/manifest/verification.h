// Whether a checkpoint is what its manifest says.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "files/durable/system_calls.h"
#include "files/manifest/manifest.h"

namespace accelerate::files {

struct VerifyOptions {
  bool data_checksums = true;  // read all bytes; else look at the manifest and the sizes alone
};

// Something that is wrong.
struct Finding {
  std::string file{};    // in the checkpoint
  std::string tensor{};  // the part of the file, if it is known which
  std::string what{};    // "its bytes do not match the checksum"

  // "model.safetensors, tensor layer.0.weight: its bytes do not match the checksum"
  std::string text() const;
};

struct Verification {
  std::optional<Manifest> manifest{};  // unset if it cannot be read, which is a finding
  std::vector<Finding> findings{};
};

// All that is wrong with the checkpoint in that directory; empty if nothing is. Reads each file
// that the manifest lists once, from its beginning to its end; other files are no business of the
// checkpoint. Throws CheckpointError if there is no such directory.
std::vector<Finding> verify(const std::filesystem::path& directory,
                            const VerifyOptions& options = {});
// The same, and by which manifest.
Verification verify_checkpoint(const std::filesystem::path& directory,
                               const VerifyOptions& options = {});

// What is wrong with the files of that manifest in a directory that is open.
std::vector<Finding> verify_files(const UniqueFd& directory, const std::filesystem::path& path,
                                  const Manifest& manifest, const VerifyOptions& options);

}  // namespace accelerate::files

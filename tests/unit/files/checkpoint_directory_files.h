// Small checkpoints for the tests of their directories.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "accelerate/errors.h"
#include "files/manifest/checkpoint_directory.h"
#include "files/manifest/checkpoint_writer.h"
#include "launch/scratch_folder.h"
#include "support/error_of.h"

namespace accelerate::files {

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Writes the files of a small checkpoint, all different for each step, and returns their manifest.
inline Manifest write_files(const CheckpointWriter& writer, int64_t step) {
  Manifest manifest{.library_version = "0.1.0", .world_size = 2, .step = step};
  manifest.state["step"] = step;
  for (const std::string name : {"model.safetensors", "optimizer.bin"}) {
    DurableFile file = writer.create(name);
    file.write(bytes_of("header of " + name));
    for (const char* tensor : {"weight", "bias"}) {
      file.begin_part(tensor);
      file.write(bytes_of(std::string(100, static_cast<char>('a' + step % 26)) + tensor));
    }
    manifest.files.push_back(file.close());
  }
  return manifest;
}

inline CommitReport save(const std::filesystem::path& directory, int64_t step,
                         const WriterOptions& options = {}) {
  CheckpointWriter writer(directory, options);
  return writer.commit(write_files(writer, step));
}

template <typename Action>
CheckpointError checkpoint_error(Action action) {
  return test::error_of<CheckpointError>(action);
}

class CheckpointFolder : public ::testing::Test {
 protected:
  const std::filesystem::path& folder() const { return folder_.path(); }
  // All names in the folder, hidden ones too.
  std::vector<std::string> names(const std::string& below = "") const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder() / below)) {
      found.push_back(entry.path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  test::ScratchFolder folder_;
};

}  // namespace accelerate::files

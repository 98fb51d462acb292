// A file that appears under its name only when it is complete.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "files/durable/durable_file.h"

namespace accelerate::files {

// Writes beside the place where the file is to be, under a name of its own
// (`<stem>-<sixteen digits>.partial`), and moves it there in one step. An object that goes before
// publish() leaves nothing behind; what a killed process leaves ends in ".partial". One thread at a
// time.
class StagedFile {
 public:
  // Throws CheckpointError if no file can be created in the folder of `path`.
  StagedFile(const std::filesystem::path& path, std::string_view stem);
  StagedFile(StagedFile&& other) noexcept;
  StagedFile& operator=(StagedFile&&) = delete;
  ~StagedFile();

  ByteSink& sink() { return *file_; }
  // Blocks until the bytes are on the disk. Once, after the last byte.
  void close();
  // Gives the file its name and takes it from whatever file had it. Durable once the folder is
  // synced. After close().
  void publish();

  const std::filesystem::path& path() const { return path_; }
  // Where it is until then.
  const std::filesystem::path& partial() const { return partial_; }

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;
  std::optional<DurableFile> file_;
  bool closed_ = false;
};

// Whether that is the name of a file that was staged with this stem and not published.
bool is_partial_file(std::string_view name, std::string_view stem);

}  // namespace accelerate::files

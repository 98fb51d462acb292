// Writes the checkpoints of an imagined run, for pictures of what the program says of them.
//
// usage: sample_checkpoints FOLDER
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "files/manifest/checkpoint_writer.h"

namespace {

using namespace accelerate::files;  // NOLINT(google-build-using-namespace): a small program

void write_file(const CheckpointWriter& writer, Manifest& manifest, const std::string& name,
                size_t elements) {
  DurableFile file = writer.create(name);
  file.begin_part("layers.0.weight");
  std::vector<float> numbers(elements);
  for (size_t i = 0; i < elements; ++i) numbers[i] = static_cast<float>(i % 251) * 0.01F;
  file.write(std::as_bytes(std::span(numbers)));
  FileRecord record = file.close();
  record.parts[0].dtype = "F32";
  record.parts[0].shape = {static_cast<int64_t>(elements)};
  manifest.files.push_back(record);
}

void save(const std::filesystem::path& folder, int64_t step, int64_t seconds_ago) {
  CheckpointWriter writer(folder);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  Manifest manifest{.library_version = "0.1.0", .world_size = 8, .step = step};
  manifest.created = std::chrono::duration_cast<std::chrono::seconds>(now).count() - seconds_ago;
  write_file(writer, manifest, "model.safetensors", 400'000);
  write_file(writer, manifest, "optimizer.bin", 800'000);
  writer.commit(std::move(manifest));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: sample_checkpoints FOLDER\n");
    return 2;
  }
  const std::filesystem::path checkpoints = std::filesystem::path(argv[1]) / "checkpoints";
  std::filesystem::create_directories(checkpoints);
  save(checkpoints / "checkpoint_7", 7000, 3 * 60 * 60);
  save(checkpoints / "checkpoint_8", 8000, 2 * 60 * 60);
  save(checkpoints / "checkpoint_9", 9000, 25 * 60);
  return 0;
}

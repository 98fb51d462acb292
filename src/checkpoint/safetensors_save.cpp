#include "accelerate/safetensors.h"
#include "checkpoint/safetensors_stream.h"
#include "files/staged_file.h"
#include "files/system_calls.h"

namespace accelerate {

void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const SafetensorsMetadata& metadata) {
  const std::filesystem::path target = std::filesystem::absolute(path);
  files::StagedFile file(target, "safetensors");
  checkpoint::write_safetensors(file.sink(), tensors, metadata);
  file.close();
  file.publish();
  files::sync_directory(target.parent_path());
}

}  // namespace accelerate

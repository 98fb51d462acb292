#include "accelerate/safetensors.h"
#include "checkpoint/model/safetensors_stream.h"
#include "files/durable/replace_file.h"

namespace accelerate {

void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const SafetensorsMetadata& metadata) {
  files::replace_file(
      path, [&](files::ByteSink& sink) { checkpoint::write_safetensors(sink, tensors, metadata); });
}

}  // namespace accelerate

// The .metadata of torch.distributed.checkpoint is refused with a CheckpointError, or says of named
// tensors what can be said in a few times its bytes.
#include <span>

#include "accelerate/errors.h"
#include "check.h"
#include "files/dcp/dcp_metadata.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace accelerate::files;
  try {
    const DcpMetadata metadata = parse_dcp_metadata(std::as_bytes(std::span(data, size)), "file");
    size_t copied = 0;
    for (const DcpTensor& tensor : metadata.tensors) {
      copied += tensor.name.size() + tensor.shape.size();
      for (const DcpChunk& chunk : tensor.chunks) copied += chunk.start.size() + chunk.shape.size();
    }
    for (const auto& [key, item] : metadata.chunk_items)
      copied += key.first.size() + item.file.size();
    for (const auto& [name, keys] : metadata.paths) {
      for (const std::string& part : keys) copied += part.size();
    }
    FUZZ_CHECK(copied <= 64 * size + (size_t{1} << 16U));
  } catch (const accelerate::CheckpointError& error) {
    FUZZ_CHECK(!error.message().empty() && error.where() == "file");
  }
  return 0;
}

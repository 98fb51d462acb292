// The .metadata of a folder of torch.distributed.checkpoint: which tensors it holds, in which
// blocks they were cut, and where in the .distcp files these are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "files/safetensors/tensor_dtype.h"

namespace accelerate::files {

struct DcpChunk {
  std::vector<uint64_t> start;
  std::vector<uint64_t> shape;
};

struct DcpTensor {
  std::string name{};  // with the keys that led to it: "model.0.weight"
  TensorDtype dtype = TensorDtype::kF32;
  std::vector<uint64_t> shape{};
  std::vector<DcpChunk> chunks{};
};

// Bytes of a .distcp file: an archive of torch.save.
struct DcpItem {
  std::string file;
  uint64_t offset;
  uint64_t length;
};

struct DcpMetadata {
  std::vector<DcpTensor> tensors{};
  std::vector<std::string> values{};  // names of what is not a tensor
  // Of every name the keys that led to it in the nested dict that was saved: {"model", "0.weight"}.
  std::map<std::string, std::vector<std::string>> paths{};
  // By the name of the tensor and the start of the chunk.
  std::map<std::pair<std::string, std::vector<uint64_t>>, DcpItem> chunk_items{};
  std::map<std::string, DcpItem> value_items{};
};

// Reads the file as read_pickle() does: executes nothing, and memory grows with its length alone.
// Nothing is known to fit the files that it names. Throws CheckpointError with `where` as its
// place.
DcpMetadata parse_dcp_metadata(std::span<const std::byte> file, const std::string& where);

}  // namespace accelerate::files

// A model, or the state of an optimizer, whose tensors lie in pieces in mapped files.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "files/durable/byte_sink.h"
#include "files/durable/mapped_file.h"
#include "files/pieces/tensor_pieces.h"

namespace accelerate::files {

struct PiecedModel {
  std::filesystem::path folder{};  // of the files
  // All files that make it, those without tensors among them.
  std::vector<std::filesystem::path> paths{};
  std::vector<std::shared_ptr<const MappedFile>> mappings{};  // of the files with tensors
  std::vector<PiecedTensor> tensors{};
  // Other names of tensors, with the name that is among `tensors`.
  std::map<std::string, std::string> aliases{};
  std::map<std::string, std::string> metadata{};
  std::vector<std::string> left_out{};  // names of what is there and is not a tensor
};

// All bytes of the tensor as `tensor.dtype`, row-major, a few megabytes at a time. The pages that
// were read are given back.
void write_pieces(const PiecedModel& model, const PiecedTensor& tensor, ByteSink& sink);

// Throws CheckpointError, with the folder as its place, unless the pieces of every tensor make the
// whole, and the number of its bytes is one of 64 bits.
void require_whole_tensors(const PiecedModel& model);

}  // namespace accelerate::files

// The tensors of a saved model, wherever in its files their bytes are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "files/durable/byte_sink.h"
#include "files/durable/mapped_file.h"
#include "files/safetensors/shard_index.h"
#include "files/safetensors/tensor_dtype.h"

namespace accelerate::files {

// A block of a tensor, row-major in one of the files.
struct TensorPiece {
  size_t file = 0;
  uint64_t offset = 0;            // of its bytes, in the file
  std::vector<uint64_t> shape{};  // of the block
  std::vector<uint64_t> start{};  // where the block begins in the whole
};

struct MergeTensor {
  std::string name{};
  TensorDtype dtype = TensorDtype::kF32;
  std::vector<uint64_t> shape{};
  std::vector<TensorPiece> pieces{};  // together the whole tensor, none overlaps another
};

// A model in safetensors files, mapped: a file, an index (.json), a folder with one of these, or a
// state directory, whose manifest may say that a file holds a piece of a tensor alone. Everything
// is checked by the constructor, a state directory with its checksums.
//
// Reading is safe from any thread. Memory holds the headers, and what write() is about.
class MergeSource {
 public:
  // Throws CheckpointError for what load_checkpoint_in_model() refuses too (an index whose names
  // lead out of the folder, files that are missing or damaged), for archives of torch.save(), for a
  // tensor that two files hold, and for pieces that leave holes or overlap.
  explicit MergeSource(const std::filesystem::path& source, Links links = Links::kInside);

  // The folder of the files; canonical.
  const std::filesystem::path& folder() const { return folder_; }
  bool is_state() const { return is_state_; }
  // All files that make the model, its index among them.
  const std::vector<std::filesystem::path>& paths() const { return paths_; }
  // In the order of the files and of the bytes in them.
  const std::vector<MergeTensor>& tensors() const { return tensors_; }
  // Other names of tensors, with the name that is among tensors().
  const std::map<std::string, std::string>& aliases() const { return aliases_; }
  // What the metadata of the files say beside that. Keys to which they give different values are in
  // differing_metadata() in its place.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::vector<std::string>& differing_metadata() const { return differing_; }

  // All bytes of the tensor, row-major, a few megabytes at a time.
  void write(const MergeTensor& tensor, ByteSink& sink) const;

 private:
  class Reader;

  std::filesystem::path folder_;
  bool is_state_ = false;
  std::vector<std::filesystem::path> paths_;
  std::vector<std::shared_ptr<const MappedFile>> mappings_;  // of the files with tensors
  std::vector<MergeTensor> tensors_;
  std::map<std::string, std::string> aliases_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::string> differing_;
};

}  // namespace accelerate::files

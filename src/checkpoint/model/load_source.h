// Where the tensors of a checkpoint come from: the files that a path stands for, and each of them
// opened.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "accelerate/safetensors.h"
#include "files/safetensors/shard_index.h"

namespace accelerate::checkpoint {

// A tensor that a file holds, before it is read.
struct StoredTensor {
  std::string name{};
  std::vector<int64_t> shape{};
  at::ScalarType dtype = at::kFloat;

  bool operator==(const StoredTensor&) const = default;
};

// One file, open. Its tensors can be had until the object goes, and live on by themselves.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // In the order of the file, without aliases.
  virtual const std::vector<StoredTensor>& tensors() const = 0;
  // Other names of these tensors.
  virtual const std::map<std::string, std::string>& aliases() const = 0;
  // On the CPU. `name` is one of tensors().
  virtual at::Tensor tensor(const std::string& name) const = 0;
  // What tensor() gave out is not used any more: its memory may go.
  virtual void forget(const std::string& /*name*/) const {}
  // The bytes of the tensor, in row-major order. Throws CheckpointError if there are not exactly as
  // many as `bytes` takes.
  virtual void read(const std::string& name, std::span<std::byte> bytes) const;
};

// The files of a checkpoint, in the order in which they are read.
struct CheckpointFiles {
  std::vector<std::filesystem::path> files{};
  // What an index says: tensor -> position in `files`. Empty without an index.
  std::map<std::string, size_t> placed{};
  files::Links links = files::Links::kInside;  // of files in a folder that is among `files`
};

// What `checkpoint` stands for, as load_checkpoint_in_model() says. Throws CheckpointError if it
// stands for nothing.
CheckpointFiles find_checkpoint_files(const std::filesystem::path& checkpoint, files::Links links);

// Opens a .safetensors file, a folder that a sharded run of Python has left, or an archive of
// torch.save() for every other extension. All of it is checked, so that reading a tensor cannot
// fail any more. Throws CheckpointError if the file is damaged, holds something else than named
// tensors, types that torch does not have, a model of another framework, or the state of an
// optimizer.
std::unique_ptr<TensorSource> open_tensor_source(const std::filesystem::path& file,
                                                 files::Links links = files::Links::kInside);

// Tensors in memory, as if a file held them. `tensors` must outlive the source.
std::unique_ptr<TensorSource> tensor_source_of(const NamedTensors& tensors);

}  // namespace accelerate::checkpoint

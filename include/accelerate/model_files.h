// Models in files: one .safetensors or .bin file, or several with an index beside them, as Hugging
// Face libraries write and read them.
//
// None of these calls is collective: each acts for the process that calls it. With several ranks
// let one of them save, and all of them load.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "accelerate/export.h"
#include "accelerate/safetensors.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace accelerate {

class TorchValue;

// The parameters and buffers of a module by name, in the order and with the names of Python's
// state_dict(). They share the memory of the module.
using ModelStateDict = NamedTensors;

// A tensor that the module has under two names is there under both.
ACCELERATE_EXPORT ModelStateDict get_state_dict(const torch::nn::Module& module);

// A number of bytes, or a string with a decimal unit: "500KB", "10GB", "1.5TB".
class ACCELERATE_EXPORT ShardSize {
 public:
  // NOLINTBEGIN(google-explicit-constructor): a size is what it is given as
  template <std::integral Integer>
  ShardSize(Integer bytes) : bytes_(checked(static_cast<int64_t>(bytes))) {}
  // Throws UsageError for a text that is not a size.
  ShardSize(const char* text);
  ShardSize(const std::string& text);
  // NOLINTEND(google-explicit-constructor)

  uint64_t bytes() const { return bytes_; }

 private:
  static uint64_t checked(int64_t bytes);

  uint64_t bytes_;
};

struct SaveModelOptions {
  // A file holds tensors up to this many bytes; a larger tensor has a file of its own.
  ShardSize max_shard_size = "10GB";
  // false: archives of torch.save() (pytorch_model.bin) in place of safetensors.
  bool safe_serialization = true;
};

// Writes the model into `folder`, which is created if it does not exist: `model.safetensors`, or
// shards `model-00001-of-00002.safetensors` with `model.safetensors.index.json`. Written tensor by
// tensor, without a second copy of the model. Durable when it returns.
//
// Files of an earlier save_model() in the folder are replaced or removed, in either format, shards
// and index too; other files stay. The new files are written beside them under other names first:
// an error while writing leaves the earlier model as it was. At each moment the folder holds the
// earlier model or the new one; where new shards take the names of earlier ones there is a moment
// with none, never a mix.
//
// Throws CheckpointError if writing fails, UsageError if `folder` is a file or a tensor is meta.
ACCELERATE_EXPORT void save_model(const torch::nn::Module& module,
                                  const std::filesystem::path& folder,
                                  const SaveModelOptions& options = {});

struct SaveFileOptions {
  // true: a safetensors file, false: an archive of torch.save(). Unset: safetensors where the name
  // ends in .safetensors, else such an archive.
  std::optional<bool> safe_serialization{};
};

// Writes a value as torch.save() does; torch.load(path, weights_only=True) takes it. The file
// appears under `path` at once and complete, or not at all; it is durable when the call returns.
// Throws CheckpointError as save_torch_archive() does, UsageError if the name ends in .safetensors,
// which is the format of named tensors alone.
ACCELERATE_EXPORT void save(const TorchValue& value, const std::filesystem::path& path);
// Writes named tensors: an OrderedDict of torch.save(), or as save_safetensors() does, marked as
// tensors of torch (metadata "format": "pt"). Throws UsageError if the options ask for safetensors
// under a name in .bin, .pt, .pth or .pkl, or for an archive under one in .safetensors.
ACCELERATE_EXPORT void save(const NamedTensors& tensors, const std::filesystem::path& path,
                            const SaveFileOptions& options = {});

// Where the tensors of a module go: the longest name of a module or tensor that leads to it counts;
// "" is for all others.
using DeviceMap = std::map<std::string, c10::Device>;

struct LoadModelOptions {
  // Missing and unexpected names are an error.
  bool strict = false;
  // Floating-point tensors of the model become this type as they are loaded. Without it they keep
  // their type, and what is in the file is cast to it. Integers and bools are never cast.
  std::optional<at::ScalarType> dtype{};
  // Modules that stay in float32 where `dtype` is float16.
  std::vector<std::string> keep_in_fp32_modules{};
  // Tensors move to their device as they are loaded. Empty: they stay where they are.
  DeviceMap device_map{};
  // The name in the model for a name in the file; an empty string leaves that tensor out. Two names
  // must not become one.
  std::function<std::string(const std::string&)> key_mapping{};
  // Files of a folder or an index may be links that lead out of the folder, as in the cache of the
  // Hugging Face hub. Only for folders from a source you trust: a link can point to any file that
  // you may read. Names in an index must still stay inside.
  bool follow_links = false;
};

struct LoadReport {
  std::vector<std::string> missing_keys{};  // in the model, not in the file; in the model's order
  std::vector<std::string> unexpected_keys{};  // in the file, not in the model
};

// Loads a checkpoint into a model: a .safetensors file, an archive of torch.save() (.bin, .pt,
// .pth), an index (.json), or a folder with pytorch_model.bin, else model.safetensors, else one
// *.index.json. A folder with none of these may be one that a sharded run of Python has left:
// FSDP's (torch.distributed.checkpoint, .distcp files) or DeepSpeed's, of which the float32 weights
// are loaded. Parameters keep their identity: optimizers that hold them go on. Tied parameters of
// which the file holds one are loaded, and not missing.
//
// Files are mapped and read tensor by tensor, one file at a time: beside the model no more than one
// file is resident, and that only as long as memory is not short.
//
// Everything is checked first: throws CheckpointError that lists all tensors whose shape differs,
// or under `strict` all missing and unexpected ones, or names a damaged file, with nothing changed
// in the model. UsageError for a device map that leaves a tensor without device. If moving a tensor
// to its device fails, the model holds a part of the checkpoint.
ACCELERATE_EXPORT LoadReport load_checkpoint_in_model(torch::nn::Module& module,
                                                      const std::filesystem::path& checkpoint,
                                                      const LoadModelOptions& options = {});

// The same from tensors in memory.
ACCELERATE_EXPORT LoadReport load_state_dict_in_model(torch::nn::Module& module,
                                                      const NamedTensors& tensors,
                                                      const LoadModelOptions& options = {});

// load_checkpoint_in_model(), then moves also what the checkpoint did not hold to its device: the
// model can run. All devices of the map must be the same one, UsageError otherwise: a module of
// libtorch has no hooks that would carry activations from one device to the next.
ACCELERATE_EXPORT LoadReport load_checkpoint_and_dispatch(torch::nn::Module& module,
                                                          const std::filesystem::path& checkpoint,
                                                          const LoadModelOptions& options = {});

struct LoadStateDictOptions {
  bool follow_links = false;  // as in LoadModelOptions
};

// The tensors of a checkpoint (file, index or folder, as above), aliases included, on the CPU and
// mapped where the format allows it.
ACCELERATE_EXPORT ModelStateDict load_state_dict(const std::filesystem::path& checkpoint,
                                                 const LoadStateDictOptions& options = {});

struct MergeWeightsOptions {
  // Unset: one file, however large. Set: shards of at most that size, with an index.
  std::optional<ShardSize> max_shard_size{};
  // Replace a model that is in the target.
  bool overwrite = false;
  // Remove the files of the source once the new ones are durable. Not those of a state directory,
  // nor those of DeepSpeed, which hold the state of its optimizer too.
  bool remove_source = false;
  bool follow_links = false;  // as in LoadModelOptions, for the source
  // The checkpoint of DeepSpeed to read, whatever else is in the folder. Empty: the latest, where
  // the folder holds nothing else.
  std::string deepspeed_tag{};
  // Leave out parameters that DeepSpeed did not train.
  bool exclude_frozen_parameters = false;
};

struct MergeWeightsReport {
  std::filesystem::path path{};  // of the one file, or of the index
  uint64_t tensors = 0;
  uint64_t bytes = 0;  // of tensors
  uint64_t files = 0;  // with tensors
  // Keys of the metadata to which the files gave different values: they are left out.
  std::vector<std::string> differing_metadata{};
  std::vector<std::string> left_out{};  // names of what the source has and what is not a tensor
};

// Writes a model in safetensors files as one file, or in shards of another size: what the command
// `accelerate merge-weights` does. `source` is a file, an index, a folder with one of these, or a
// directory of save_state(), of which the first model is taken; where a manifest says that files
// hold pieces of a tensor, they are joined. It may also be a folder that a sharded run of Python
// has left: FSDP's (torch.distributed.checkpoint: a model, or the state of an optimizer with its
// groups as JSON in the metadata "param_groups") or DeepSpeed's, of which it takes the float32
// weights as zero_to_fp32.py does. `target` is a file if it ends in .safetensors, else a folder,
// which is created if needed.
//
// Tensors are the same byte for byte (buffers of DeepSpeed become float32); aliases and metadata
// are kept. A few megabytes are in memory at a time. Durable when it returns; complete or not at
// all, as with save_model(). Not collective.
//
// Throws UsageError if the target is in the folder of the source, holds a model and `overwrite` is
// not set, or is a state directory, or if an option for DeepSpeed is given for another source;
// CheckpointError if the source is damaged, incomplete or unsafe
// (as with load_checkpoint_in_model()), or if writing fails. Source and target are then as they
// were.
ACCELERATE_EXPORT MergeWeightsReport merge_weights(const std::filesystem::path& source,
                                                   const std::filesystem::path& target,
                                                   const MergeWeightsOptions& options = {});

// Bytes that one element takes in an estimate of memory: 4 for float32, 1/8 for bool.
ACCELERATE_EXPORT double dtype_byte_size(at::ScalarType dtype);

}  // namespace accelerate

// The tensors of a saved model, wherever in its files their bytes are.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "files/durable/byte_sink.h"
#include "files/pieces/pieced_model.h"
#include "files/safetensors/shard_index.h"

namespace accelerate::files {

struct MergeSourceOptions {
  Links links = Links::kInside;
  // The checkpoint of DeepSpeed to read, whatever else is in the folder. Empty: the latest, where
  // the folder holds nothing else.
  std::string deepspeed_tag{};
  // Leave out parameters that DeepSpeed did not train.
  bool exclude_frozen_parameters = false;
};

// Whether the folder holds a model in one of Python's formats for sharded runs:
// torch.distributed.checkpoint (also as FSDP leaves it in a saved state) or DeepSpeed.
bool holds_foreign_shards(const std::filesystem::path& folder);

// A model in safetensors files, mapped: a file, an index (.json), a folder with one of these, or a
// state directory, whose manifest may say that a file holds a piece of a tensor alone. Or a model,
// or the state of an optimizer, that Python's FSDP has left in a folder of
// torch.distributed.checkpoint, and the float32 weights in a folder of DeepSpeed. Everything is
// checked by the constructor, a state directory and the formats of Python with their checksums.
//
// Reading is safe from any thread. Memory holds the headers, and what write() is about.
class MergeSource {
 public:
  enum class Kind { kFiles, kState, kDistributed, kDeepspeed };

  // Throws CheckpointError for what load_checkpoint_in_model() refuses too (an index whose names
  // lead out of the folder, files that are missing or damaged), for archives of torch.save(), for a
  // tensor that two files hold, and for pieces that leave holes or overlap. UsageError if an option
  // for DeepSpeed is given and the source is of another kind.
  explicit MergeSource(const std::filesystem::path& source, const MergeSourceOptions& options = {});

  // The folder of the files; canonical.
  const std::filesystem::path& folder() const { return model_.folder; }
  Kind kind() const { return kind_; }
  // All files that make the model, its index among them.
  const std::vector<std::filesystem::path>& paths() const { return model_.paths; }
  // In the order of the files and of the bytes in them.
  const std::vector<PiecedTensor>& tensors() const { return model_.tensors; }
  // Other names of tensors, with the name that is among tensors().
  const std::map<std::string, std::string>& aliases() const { return model_.aliases; }
  // What the metadata of the files say beside that. Keys to which they give different values are in
  // differing_metadata() in its place.
  const std::map<std::string, std::string>& metadata() const { return model_.metadata; }
  const std::vector<std::string>& differing_metadata() const { return differing_; }
  // Names of what the source has and what is not a tensor.
  const std::vector<std::string>& left_out() const { return model_.left_out; }

  // All bytes of the tensor, row-major, a few megabytes at a time.
  void write(const PiecedTensor& tensor, ByteSink& sink) const {
    write_pieces(model_, tensor, sink);
  }

 private:
  class Reader;

  Kind kind_ = Kind::kFiles;
  PiecedModel model_;
  std::vector<std::string> differing_;
};

}  // namespace accelerate::files

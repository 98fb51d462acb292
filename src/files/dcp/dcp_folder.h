// Folders of torch.distributed.checkpoint: .metadata and .distcp files, as FSDP in Python writes
// them.
#pragma once

#include <filesystem>
#include <string>

#include "files/pieces/pieced_model.h"
#include "files/safetensors/shard_index.h"

namespace accelerate::files {

// The key of the metadata under which the groups of an optimizer are kept, as JSON: a list of
// objects, "params" among their keys with the names of the parameters.
inline constexpr const char* kParamGroupsKey = "param_groups";

// Where a FSDP run of the Accelerate library in Python keeps model `number` and optimizer `number`
// of a saved state.
std::string dcp_model_folder(size_t number);
std::string dcp_optimizer_folder(size_t number);

// Whether the folder is one: by its .metadata.
bool is_dcp_folder(const std::filesystem::path& folder);

struct DcpState {
  PiecedModel model{};
  bool is_optimizer = false;
};

// Opens the folder and checks all of it: files, archives with their checksums, and that chunks make
// whole tensors. Costs one reading of the files.
//
// Names are those of the model: where one key leads to everything that was saved ({"model": ...}),
// it is left out. The state of an optimizer ({"optimizer": {"state", "param_groups"}}) has tensors
// named "<parameter>.<field>" and its groups in the metadata under kParamGroupsKey. What else is
// not a tensor is left out, and named in `left_out`.
//
// Throws CheckpointError for a folder that is damaged, incomplete, refers to files outside of it,
// or holds what is not known.
DcpState read_dcp_folder(const std::filesystem::path& folder, Links links = Links::kInside);

}  // namespace accelerate::files

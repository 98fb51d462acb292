// What the files of a DeepSpeed checkpoint hold: model states and optimizer states of a rank.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "files/durable/mapped_file.h"
#include "files/pickle/pickle_archive.h"
#include "files/pieces/archived_tensor.h"

namespace accelerate::files {

// A parameter and its shape.
using ZeroShapes = std::vector<std::pair<std::string, std::vector<uint64_t>>>;
// In the order of the file.
using ZeroTensors = std::vector<std::pair<std::string, ArchivedTensor>>;

struct ZeroModelStates {
  std::shared_ptr<const MappedFile> file{};
  std::vector<ZeroShapes> groups{};  // of parameters that are trained
  ZeroShapes frozen{};
  ZeroTensors frozen_fragments{};  // whole, or the part of the rank
  ZeroTensors buffers{};
  std::vector<std::pair<std::string, std::string>> shared{};  // other name, name
};

// A row of elements in a file.
struct ZeroFlat {
  TensorDtype dtype = TensorDtype::kF32;
  uint64_t offset = 0;  // of its first byte
  uint64_t elements = 0;
};

struct ZeroOptimizerStates {
  std::shared_ptr<const MappedFile> file{};
  int stage = 0;
  uint64_t ranks = 0;
  std::vector<ZeroFlat> masters{};  // the part of this rank of every group
  // Elements behind each parameter of a group, that align the next one. None before DeepSpeed 0.19.
  std::vector<std::vector<uint64_t>> paddings{};
};

// Both read the file as PickleArchive does and check what they return against its checksums: the
// moments of the optimizer, which are most of it, are not looked at. Throw CheckpointError.
ZeroModelStates read_zero_model_states(const std::filesystem::path& path);
ZeroOptimizerStates read_zero_optimizer_states(const std::filesystem::path& path);

}  // namespace accelerate::files

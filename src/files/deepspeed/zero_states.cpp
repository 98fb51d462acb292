#include "files/deepspeed/zero_states.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "files/pickle/pickle_fields.h"
#include "files/safetensors/mapped_checkpoint.h"

namespace accelerate::files {
namespace {

constexpr std::array kDeepspeedClasses{
    PickleClass{"deepspeed.runtime.fp16.loss_scaler", "LossScaler"},
    PickleClass{"deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler"},
    PickleClass{"deepspeed.runtime.zero.config", "ZeroStageEnum"},
    PickleClass{"deepspeed.runtime.zero.offload_config", "OffloadDeviceEnum"},
    PickleClass{"deepspeed.utils.tensor_fragment", "fragment_address"},
    PickleClass{"argparse", "Namespace"},
};

// An open file of DeepSpeed.
class ZeroArchive {
 public:
  ZeroArchive(const std::filesystem::path& path, const std::string& kind)
      : where_(path.string()),
        file_(map_checkpoint_file(path, "the " + kind)),
        archive_(file_->bytes(), where_, {.classes = kDeepspeedClasses, .check_data = false}),
        fields_(archive_.document(), where_, "a file of DeepSpeed's " + kind) {}

  PickleFields& fields() { return fields_; }
  const std::shared_ptr<const MappedFile>& file() const { return file_; }
  const PickleDict& root() const { return fields_.dict(archive_.document().root, "what it holds"); }

  // Checked against its checksum, once a storage.
  ArchivedTensor located(PickleIndex index, const std::string& name) {
    const std::string subject = "tensor " + in_quotes(name);
    const PickleTensor& tensor = fields_.tensor(index, subject);
    ArchivedTensor found = locate_tensor(archive_, tensor, file_->bytes(), subject, where_);
    const PickleStorage& storage = storage_of(archive_, tensor);
    if (checked_.insert(storage.key).second) {
      archive_.check(storage);
      const auto memory = archive_.bytes(storage);
      file_->forget(static_cast<size_t>(memory.data() - file_->bytes().data()), memory.size());
    }
    return found;
  }

  // The names and shapes of a dict; an empty one for None.
  ZeroShapes shapes(PickleIndex index, const std::string& subject) {
    ZeroShapes shapes;
    if (fields_.is_none(index)) return shapes;
    for (const auto& [name, shape] : fields_.dict(index, subject).entries) {
      std::string copied = fields_.copied_text(name, "the name of a parameter");
      shapes.emplace_back(std::move(copied), fields_.shape(shape, "the shape of a parameter"));
    }
    return shapes;
  }

 private:
  std::string where_;
  std::shared_ptr<const MappedFile> file_;
  PickleArchive archive_;
  PickleFields fields_;
  std::set<std::string> checked_;
};

// An integer, or an enumerator that was made of one.
int64_t enumerator(const PickleFields& fields, PickleIndex index, const std::string& subject) {
  if (const PickleRecord* record = fields.find_record(index, "ZeroStageEnum")) {
    const auto& arguments = fields.list(record->arguments, subject);
    if (arguments.size() == 1) return fields.integer(arguments.front(), subject);
  }
  return fields.integer(index, subject);
}

// One number for all groups, or one for each.
uint64_t partition_count(const PickleFields& fields, PickleIndex index) {
  constexpr const char* kSubject = "partition_count";
  if (std::holds_alternative<int64_t>(fields.at(index))) return fields.natural(index, kSubject);
  std::set<uint64_t> counts;
  for (const PickleIndex count : fields.list(index, kSubject)) {
    counts.insert(fields.natural(count, kSubject));
  }
  if (counts.size() == 1) return *counts.begin();
  fields.refuse("its groups are on different numbers of ranks, as those of experts");
}

std::vector<std::vector<uint64_t>> paddings_of(PickleFields& fields, PickleIndex index) {
  std::vector<std::vector<uint64_t>> paddings;
  if (fields.is_none(index)) return paddings;
  constexpr const char* kSubject = "param_alignment_paddings";
  for (const PickleIndex group : fields.list(index, kSubject)) {
    std::vector<uint64_t>& numbers = paddings.emplace_back();
    for (const PickleIndex padding : fields.list(group, kSubject)) {
      fields.count_copy(sizeof(uint64_t));
      numbers.push_back(fields.natural(padding, kSubject));
    }
  }
  return paddings;
}

}  // namespace

ZeroModelStates read_zero_model_states(const std::filesystem::path& path) {
  ZeroArchive archive(path, "model states");
  PickleFields& fields = archive.fields();
  const PickleDict& root = archive.root();
  ZeroModelStates states{.file = archive.file()};
  for (const PickleIndex group : fields.list(fields.need(root, "param_shapes"), "param_shapes")) {
    states.groups.push_back(archive.shapes(group, "param_shapes"));
  }
  if (const auto frozen = fields.find(root, "frozen_param_shapes")) {
    states.frozen = archive.shapes(*frozen, "frozen_param_shapes");
  }
  const auto add = [&](PickleIndex name, PickleIndex tensor, ZeroTensors& tensors) {
    std::string text = fields.copied_text(name, "the name of a tensor");
    ArchivedTensor located = archive.located(tensor, text);
    tensors.emplace_back(std::move(text), std::move(located));
  };
  if (const auto fragments = fields.find(root, "frozen_param_fragments");
      fragments && !fields.is_none(*fragments)) {
    for (const auto& [name, tensor] : fields.dict(*fragments, "frozen_param_fragments").entries) {
      add(name, tensor, states.frozen_fragments);
    }
  }
  std::set<std::string> buffers;
  for (const PickleIndex name : fields.list(fields.need(root, "buffer_names"), "buffer_names")) {
    buffers.insert(fields.copied_text(name, "the name of a buffer"));
  }
  if (!buffers.empty()) {
    for (const auto& [name, tensor] : fields.dict(fields.need(root, "module"), "module").entries) {
      if (buffers.contains(fields.text(name, "the name of a tensor"))) {
        add(name, tensor, states.buffers);
      }
    }
  }
  if (const auto shared = fields.find(root, "shared_params"); shared && !fields.is_none(*shared)) {
    for (const auto& [other, name] : fields.dict(*shared, "shared_params").entries) {
      std::string copied = fields.copied_text(other, "a shared parameter");
      states.shared.emplace_back(std::move(copied), fields.copied_text(name, "a shared parameter"));
    }
  }
  return states;
}

ZeroOptimizerStates read_zero_optimizer_states(const std::filesystem::path& path) {
  ZeroArchive archive(path, "optimizer states");
  PickleFields& fields = archive.fields();
  const PickleDict& state =
      fields.dict(fields.need(archive.root(), "optimizer_state_dict"), "optimizer_state_dict");
  ZeroOptimizerStates states{.file = archive.file()};
  const int64_t stage = enumerator(fields, fields.need(state, "zero_stage"), "zero_stage");
  if (stage < 1 || stage > 3) {
    fields.refuse("it is of ZeRO stage " + std::to_string(stage) + ", 1 to 3 are known");
  }
  states.stage = static_cast<int>(stage);
  states.ranks = partition_count(fields, fields.need(state, "partition_count"));
  const char* key = stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups";
  for (const PickleIndex group : fields.list(fields.need(state, key), key)) {
    const ArchivedTensor flat = archive.located(group, key);
    if (!flat.piece.strides.empty()) fields.refuse("the weights of a group are not one row");
    states.masters.push_back(
        {.dtype = flat.dtype, .offset = flat.piece.offset, .elements = flat.elements});
  }
  if (const auto paddings = fields.find(state, "param_alignment_paddings")) {
    states.paddings = paddings_of(fields, *paddings);
  }
  return states;
}

}  // namespace accelerate::files

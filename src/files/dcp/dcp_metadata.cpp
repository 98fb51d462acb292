#include "files/dcp/dcp_metadata.h"

#include <array>
#include <optional>

#include "base/message_text.h"
#include "files/pickle/pickle_fields.h"
#include "files/pickle/pickle_reader.h"
#include "files/pieces/archived_tensor.h"

namespace accelerate::files {
namespace {

constexpr std::string_view kMetadataModule = "torch.distributed.checkpoint.metadata";
// Where some of the classes were before torch 2.3.
constexpr std::string_view kShardedModule = "torch.distributed._shard.sharded_tensor.metadata";

constexpr std::array kDcpClasses{
    PickleClass{kMetadataModule, "Metadata"},
    PickleClass{kMetadataModule, "TensorStorageMetadata"},
    PickleClass{kMetadataModule, "BytesStorageMetadata"},
    PickleClass{kMetadataModule, "ChunkStorageMetadata"},
    PickleClass{kMetadataModule, "TensorProperties"},
    PickleClass{kMetadataModule, "MetadataIndex"},
    PickleClass{kMetadataModule, "StorageMeta"},
    PickleClass{kMetadataModule, "_MEM_FORMAT_ENCODING"},
    PickleClass{kShardedModule, "TensorProperties"},
    PickleClass{kShardedModule, "MEM_FORMAT_ENCODING"},
    PickleClass{"torch.distributed.checkpoint.filesystem", "_StorageInfo"},
    PickleClass{"torch.serialization", "_get_layout"},
    PickleClass{"pathlib", "PosixPath"},
    PickleClass{"pathlib", "WindowsPath"},
    PickleClass{"pathlib._local", "PosixPath"},
    PickleClass{"pathlib._local", "WindowsPath"},
};

class DcpMetadataReader {
 public:
  DcpMetadataReader(const PickleDocument& document, const std::string& where)
      : fields_(document, where, "the .metadata of torch.distributed.checkpoint") {}

  DcpMetadata read() {
    const PickleDict& all = state_of(fields_.document().root, "Metadata");
    const PickleIndex entries = fields_.need(all, "state_dict_metadata");
    for (const auto& [name, entry] : fields_.dict(entries, "state_dict_metadata").entries) {
      add_entry(fields_.copied_text(name, "a name"), entry);
    }
    const PickleIndex items = fields_.need(all, "storage_data");
    for (const auto& [index, item] : fields_.dict(items, "storage_data").entries) {
      add_item(index, item);
    }
    if (const auto paths = fields_.find(all, "planner_data")) add_paths(*paths);
    return std::move(metadata_);
  }

 private:
  const PickleDict& state_of(PickleIndex index, std::string_view type) const {
    const PickleRecord* record = fields_.find_record(index, type);
    if (record == nullptr || !record->state) {
      fields_.refuse("something else is where a " + std::string(type) + " is expected");
    }
    return fields_.dict(*record->state, "the state of a " + std::string(type));
  }

  void add_entry(const std::string& name, PickleIndex entry) {
    if (fields_.find_record(entry, "BytesStorageMetadata") != nullptr) {
      metadata_.values.push_back(name);
      return;
    }
    const PickleDict& stored = state_of(entry, "TensorStorageMetadata");
    DcpTensor tensor{.name = name,
                     .dtype = dtype_of(fields_.need(stored, "properties"), name),
                     .shape = fields_.shape(fields_.need(stored, "size"), "the size of a tensor")};
    for (const PickleIndex chunk :
         fields_.list(fields_.need(stored, "chunks"), "the chunks of a tensor")) {
      const PickleDict& block = state_of(chunk, "ChunkStorageMetadata");
      fields_.count_copy(sizeof(DcpChunk));
      tensor.chunks.push_back(
          {.start = fields_.shape(fields_.need(block, "offsets"), "the start of a chunk"),
           .shape = fields_.shape(fields_.need(block, "sizes"), "the size of a chunk")});
    }
    metadata_.tensors.push_back(std::move(tensor));
  }

  // TensorProperties are pickled as (dtype, layout, requires_grad, memory format, pin_memory).
  TensorDtype dtype_of(PickleIndex properties, const std::string& name) const {
    const PickleRecord* record = fields_.find_record(properties, "TensorProperties");
    if (record == nullptr || !record->state) fields_.refuse("a tensor has no TensorProperties");
    const auto& parts = fields_.list(*record->state, "the state of TensorProperties");
    const auto* dtype =
        parts.empty() ? nullptr : std::get_if<PickleDtype>(&fields_.at(parts.front()));
    if (dtype == nullptr) fields_.refuse("a tensor has no type");
    if (const auto known = dtype_of_torch(dtype->name)) return *known;
    fields_.refuse("tensor " + in_quotes(name) + " has the type " + std::string(dtype->name) +
                   ", which safetensors do not have");
  }

  void add_item(PickleIndex index, PickleIndex item) {
    const PickleDict& key = state_of(index, "MetadataIndex");
    const std::string name = fields_.copied_text(fields_.need(key, "fqn"), "the name of an item");
    const PickleDict& place = state_of(item, "_StorageInfo");
    const auto transforms = fields_.find(place, "transform_descriptors");
    if (transforms && !fields_.is_none(*transforms)) {
      fields_.refuse("the bytes of " + in_quotes(name) + " are compressed or encrypted");
    }
    DcpItem stored{
        .file = fields_.copied_text(fields_.need(place, "relative_path"), "the file of an item"),
        .offset = fields_.natural(fields_.need(place, "offset"), "the offset of an item"),
        .length = fields_.natural(fields_.need(place, "length"), "the length of an item")};
    const auto offset = fields_.find(key, "offset");
    const bool is_new =
        !offset || fields_.is_none(*offset)
            ? metadata_.value_items.emplace(name, std::move(stored)).second
            : metadata_.chunk_items
                  .emplace(std::pair(name, fields_.shape(*offset, "the start of an item")),
                           std::move(stored))
                  .second;
    if (!is_new) fields_.refuse("a piece of " + in_quotes(name) + " is there twice");
  }

  // What the planner needs to nest the names again; None where nothing was nested.
  void add_paths(PickleIndex planner) {
    const PickleDict* paths = fields_.find_dict(planner);
    if (paths == nullptr) return;
    for (const auto& [name, path] : paths->entries) {
      std::vector<std::string> keys;
      for (const PickleIndex key : fields_.list(path, "the path of a name")) {
        const std::string* held = fields_.find_text(key);
        keys.push_back(held != nullptr ? *held
                                       : std::to_string(fields_.integer(key, "a key of a path")));
        fields_.count_copy(sizeof(std::string) + keys.back().size());
      }
      metadata_.paths.emplace(fields_.copied_text(name, "a name"), std::move(keys));
    }
  }

  PickleFields fields_;
  DcpMetadata metadata_;
};

}  // namespace

DcpMetadata parse_dcp_metadata(std::span<const std::byte> file, const std::string& where) {
  const PickleDocument document = read_pickle(file, where, kDcpClasses);
  return DcpMetadataReader(document, where).read();
}

}  // namespace accelerate::files

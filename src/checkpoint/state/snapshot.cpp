#include "checkpoint/state/snapshot.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "accelerate/errors.h"
#include "checkpoint/archive/torch_archive_writer.h"
#include "checkpoint/model/safetensors_stream.h"
#include "device/device_backend.h"
#include "files/durable/durable_file.h"

namespace accelerate::checkpoint {
namespace {

// Copies each tensor once, however many names it has.
class SnapshotCopies {
 public:
  explicit SnapshotCopies(HostBuffers& buffers) : buffers_(buffers) { buffers_.begin_round(); }

  at::Tensor copy(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return tensor;
    const Key key{tensor.storage().unsafeGetStorageImpl(),
                  tensor.storage_offset(),
                  tensor.sizes().vec(),
                  tensor.strides().vec(),
                  tensor.scalar_type(),
                  tensor.is_conj(),
                  tensor.is_neg()};
    const auto found = copies_.find(key);
    if (found != copies_.end()) return found->second;
    return copies_.emplace(key, copied(tensor.detach())).first->second;
  }

  TorchValue copy(const TorchValue& value) {
    const auto all = [&](const std::vector<TorchValue>& items) {
      std::vector<TorchValue> result;
      result.reserve(items.size());
      for (const TorchValue& item : items) result.push_back(copy(item));
      return result;
    };
    if (const auto* tensor = std::get_if<at::Tensor>(&value.variant())) return copy(*tensor);
    if (const auto* list = std::get_if<TorchValue::List>(&value.variant())) return all(*list);
    if (const auto* tuple = std::get_if<TorchTuple>(&value.variant())) {
      return TorchTuple{.items = all(tuple->items)};
    }
    if (const auto* dict = std::get_if<TorchDict>(&value.variant())) {
      TorchDict result(dict->kind());
      for (const auto& [key, item] : dict->entries()) result.add(key, copy(item));
      return result;
    }
    return value;
  }

  // Returns when all copies hold their values.
  void finish() {
    buffers_.end_round();
    for (const auto& [type, index] : devices_) {
      const c10::impl::VirtualGuardImpl device(type);
      device.getStream(c10::Device(type, index)).synchronize();
    }
  }

 private:
  // Memory, and how a tensor sees it: z and conj(z) are the same bytes and other values.
  using Key = std::tuple<const void*, int64_t, std::vector<int64_t>, std::vector<int64_t>,
                         at::ScalarType, bool, bool>;

  at::Tensor copied(const at::Tensor& tensor) {
    if (tensor.device().is_cpu()) return buffers_.empty_like(tensor).copy_(tensor);
    if (!device::device_backend(tensor.device().type()).pins_memory()) return tensor.cpu();
    devices_.emplace(tensor.device().type(), tensor.device().index());
    const auto options = at::TensorOptions().dtype(tensor.scalar_type()).pinned_memory(true);
    // Expanded tensors have fewer places in memory than elements, and slices more.
    at::Tensor host = tensor.is_non_overlapping_and_dense()
                          ? at::empty_strided(tensor.sizes(), tensor.strides(), options)
                          : at::empty(tensor.sizes(), options);
    host.copy_(tensor, /*non_blocking=*/true);
    return host;
  }

  HostBuffers& buffers_;
  std::map<Key, at::Tensor> copies_;
  std::set<std::pair<c10::DeviceType, c10::DeviceIndex>> devices_;
};

void describe_tensors(const TensorsFile& file, files::FileRecord& record) {
  for (files::PartRecord& part : record.parts) {
    const at::Tensor* tensor = file.tensors.find(part.name);
    if (tensor == nullptr) continue;
    if (const auto dtype = file_dtype(tensor->scalar_type()))
      part.dtype = files::dtype_name(*dtype);
    part.shape = tensor->sizes().vec();
    if (const auto shard = file.shards.find(part.name); shard != file.shards.end()) {
      part.shard = shard->second;
    }
  }
}

}  // namespace

void Snapshot::take_pieces_below(int rank) {
  ranks_with_pieces_ = rank;
  facts_[kRanksWithPieces] = rank;
}

void Snapshot::add(std::string name, NamedTensors tensors, SafetensorsMetadata metadata) {
  add(std::move(name), TensorsFile{std::move(tensors), std::move(metadata)});
}

void Snapshot::add(std::string name, TensorsFile file) {
  files_.push_back({.name = std::move(name), .content = std::move(file)});
}

void Snapshot::add(std::string name, TorchValue value) {
  files_.push_back({.name = std::move(name), .content = std::move(value)});
}

void Snapshot::copy_to_host(HostBuffers& buffers) {
  SnapshotCopies copies(buffers);
  for (SnapshotFile& file : files_) {
    if (auto* tensors = std::get_if<TensorsFile>(&file.content)) {
      for (auto& item : tensors->tensors) item.value() = copies.copy(item.value());
    } else {
      auto& value = std::get<TorchValue>(file.content);
      value = copies.copy(value);
    }
  }
  copies.finish();
}

files::FileRecord write_snapshot_file(const std::filesystem::path& directory,
                                      const SnapshotFile& file) {
  files::DurableFile sink(directory, file.name);
  if (const auto* tensors = std::get_if<TensorsFile>(&file.content)) {
    write_safetensors(sink, tensors->tensors, tensors->metadata);
    files::FileRecord record = sink.close();
    describe_tensors(*tensors, record);
    return record;
  }
  const std::string stem = std::filesystem::path(file.name).stem().string();
  write_torch_archive(sink, std::get<TorchValue>(file.content), stem);
  return sink.close();
}

std::string numbered_file(std::string_view stem, size_t number, std::string_view extension) {
  std::string name(stem);
  if (number > 0) name += "_" + std::to_string(number);
  return name.append(extension);
}

}  // namespace accelerate::checkpoint

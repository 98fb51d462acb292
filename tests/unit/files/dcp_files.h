// Folders of torch.distributed.checkpoint, written by hand.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "unit/files/python_pickles.h"

namespace accelerate::test {

// What a folder says and holds; change what is to be wrong before it is written.
struct DcpFiles {
  struct Chunk {
    std::vector<uint64_t> start;
    std::vector<uint64_t> shape;
  };
  struct Tensor {
    std::string name;
    py::ElementType type;
    std::vector<uint64_t> shape;
    std::vector<Chunk> chunks;
  };
  struct Item {
    std::string name;
    std::optional<std::vector<uint64_t>> start;
    std::string file;
    uint64_t offset;
    uint64_t length;
    py::Value transforms = {};  // none
  };

  std::vector<Tensor> tensors{};
  std::vector<std::string> values{};
  std::vector<Item> items{};
  std::map<std::string, std::vector<std::string>> paths{};
  std::map<std::string, std::string> files{};

  void add_item(const std::string& name, std::optional<std::vector<uint64_t>> start, int rank,
                const std::string& archive) {
    const std::string file = "__" + std::to_string(rank) + "_0.distcp";
    std::string& bytes = files[file];
    items.push_back({name, std::move(start), file, bytes.size(), archive.size()});
    bytes += archive;
  }

  // The chunk that `rank` has of the last tensor.
  void add_chunk(std::vector<uint64_t> start, std::vector<uint64_t> shape, const std::string& bytes,
                 int rank, std::vector<uint64_t> strides = {}) {
    Tensor& tensor = tensors.back();
    tensor.chunks.push_back({start, shape});
    py::TorchFile file;
    const py::Value root = file.tensor(bytes, shape, tensor.type, std::move(strides));
    add_item(tensor.name, start, rank, file.file(root));
  }

  void add_value(const std::string& name, const py::Value& value, int rank) {
    values.push_back(name);
    add_item(name, std::nullopt, rank, py::TorchFile().file(value));
  }

  std::string metadata() const {
    constexpr const char* kModule = "torch.distributed.checkpoint.metadata";
    std::vector<std::pair<py::Value, py::Value>> entries;
    for (const Tensor& tensor : tensors) {
      std::vector<py::Value> chunks;
      for (const Chunk& chunk : tensor.chunks) {
        chunks.push_back(py::object(kModule, "ChunkStorageMetadata",
                                    py::dict({{py::text("offsets"), py::size(chunk.start)},
                                              {py::text("sizes"), py::size(chunk.shape)}})));
      }
      const py::Value properties = py::object(
          kModule, "TensorProperties",
          py::tuple({py::global("torch", tensor.type.dtype),
                     py::call("torch.serialization", "_get_layout", {py::text("torch.strided")}),
                     py::boolean(false),
                     py::call(kModule, "_MEM_FORMAT_ENCODING", {py::integer(0)}),
                     py::boolean(false)}));
      entries.emplace_back(py::text(tensor.name),
                           py::object(kModule, "TensorStorageMetadata",
                                      py::dict({{py::text("properties"), properties},
                                                {py::text("size"), py::size(tensor.shape)},
                                                {py::text("chunks"), py::list(chunks)}})));
    }
    for (const std::string& name : values) {
      entries.emplace_back(py::text(name), py::global(kModule, "BytesStorageMetadata") + ")\x81");
    }
    std::vector<std::pair<py::Value, py::Value>> storage;
    for (const Item& item : items) {
      std::vector<std::pair<py::Value, py::Value>> key{{py::text("fqn"), py::text(item.name)},
                                                       {py::text("index"), py::none()}};
      if (item.start) key.emplace_back(py::text("offset"), py::size(*item.start));
      std::vector<std::pair<py::Value, py::Value>> place{
          {py::text("relative_path"), py::text(item.file)},
          {py::text("offset"), py::integer(static_cast<int64_t>(item.offset))},
          {py::text("length"), py::integer(static_cast<int64_t>(item.length))}};
      if (!item.transforms.empty()) {
        place.emplace_back(py::text("transform_descriptors"), item.transforms);
      }
      storage.emplace_back(
          py::object(kModule, "MetadataIndex", py::dict(key)),
          py::object("torch.distributed.checkpoint.filesystem", "_StorageInfo", py::dict(place)));
    }
    std::vector<std::pair<py::Value, py::Value>> planner;
    for (const auto& [name, path] : paths) {
      std::vector<py::Value> keys;
      for (const std::string& key : path) keys.push_back(py::text(key));
      planner.emplace_back(py::text(name), py::tuple(keys));
    }
    return py::pickle(py::object(kModule, "Metadata",
                                 py::dict({{py::text("state_dict_metadata"), py::dict(entries)},
                                           {py::text("planner_data"), py::dict(planner)},
                                           {py::text("storage_data"), py::dict(storage)},
                                           {py::text("storage_meta"), py::none()}})));
  }

  void write(const std::filesystem::path& folder) const {
    std::filesystem::create_directories(folder);
    std::ofstream(folder / ".metadata", std::ios::binary) << metadata();
    for (const auto& [name, bytes] : files) std::ofstream(folder / name, std::ios::binary) << bytes;
  }
};

}  // namespace accelerate::test

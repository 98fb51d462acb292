// Folders that sharded runs of Python leave, as sources of tensors.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/model/load_source.h"
#include "files/merge/merge_source.h"

namespace accelerate::checkpoint {

// A folder for which files::holds_foreign_shards() holds. All of it is checked when it is made. A
// tensor is put together when it is asked for.
class PiecedSource final : public TensorSource {
 public:
  // Throws CheckpointError as files::MergeSource does, and for types that torch does not have.
  PiecedSource(const std::filesystem::path& folder, files::Links links);

  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  const std::map<std::string, std::string>& aliases() const override { return source_.aliases(); }
  at::Tensor tensor(const std::string& name) const override;
  void read(const std::string& name, std::span<std::byte> bytes) const override;

  // The groups of an optimizer, as JSON; none where the folder holds a model.
  std::optional<std::string> param_groups() const;

 private:
  const files::PiecedTensor& pieced(const std::string& name) const;

  files::MergeSource source_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t> positions_;
};

}  // namespace accelerate::checkpoint

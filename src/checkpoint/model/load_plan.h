// What loading a checkpoint does to a model: found out and checked as a whole before the first
// tensor changes.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/model_files.h"
#include "checkpoint/model/load_source.h"

namespace accelerate::checkpoint {

// Calls in this order: add() for each file, check(), load() for each file, finish().
class LoadPlan {
 public:
  // `state` are the tensors of the model.
  LoadPlan(ModelStateDict state, const LoadModelOptions& options);

  // Takes note of what the file of that number holds; reads no tensor. Throws CheckpointError if
  // the index places a tensor there that is not there, UsageError if key_mapping gives two tensors
  // one name.
  void add(const TensorSource& source, size_t file, const CheckpointFiles& files);

  // The names that are missing or unexpected.
  LoadReport report() const;

  // Throws if the tensors noted cannot all be loaded, as load_checkpoint_in_model() says; `where`
  // is the place in the message.
  LoadReport check(const std::string& where) const;

  // Puts the tensors of that file into the model. Throws CheckpointError, before it has changed
  // anything of this file, if the file was replaced since add(): those of files before it are
  // loaded. `where` is the place in the message.
  void load(const TensorSource& source, size_t file, const std::string& where) const;

  // Ties again what was tied and came apart when its type or device changed.
  void finish() const;

  // Throws UsageError if a tensor of the model has no device in the map.
  void check_devices() const;
  // Moves every tensor of the model to its device.
  void move_all() const;

 private:
  struct Source {
    size_t file = 0;
    std::string stored{};  // its name in the file
    StoredTensor tensor{};
    bool is_alias = false;
  };

  void note(const std::string& stored, const StoredTensor& tensor, size_t file, bool is_alias);
  void check_keys(const LoadReport& report, const std::string& where) const;
  void check_tensors(const std::string& where) const;
  void check_devices(const std::vector<std::string>& names) const;
  c10::Device device_of(const std::string& name) const;
  at::ScalarType dtype_of(const std::string& name) const;
  void put(const std::string& name, const TensorSource& source, const StoredTensor& stored) const;

  ModelStateDict state_;
  std::map<std::string, std::string> tied_;  // other name -> first name, in the model
  const LoadModelOptions& options_;
  std::map<std::string, Source> sources_;  // by the name in the model
  std::vector<std::string> unexpected_;
};

}  // namespace accelerate::checkpoint

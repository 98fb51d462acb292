#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <memory>
#include <set>

#include "accelerate/empty_weights.h"
#include "accelerate/errors.h"
#include "accelerate/model_files.h"
#include "checkpoint/model/load_plan.h"
#include "checkpoint/model/load_source.h"
#include "checkpoint/name_list.h"
#include "compat/deferred.h"

namespace accelerate {
namespace {

namespace fs = std::filesystem;
using checkpoint::CheckpointFiles;
using checkpoint::LoadPlan;
using checkpoint::TensorSource;

files::Links links_of(bool follow_links) {
  return follow_links ? files::Links::kFollowed : files::Links::kInside;
}

// The files of a checkpoint, opened as they are needed. Safetensors files stay open from the check
// to the loading: what was checked is what is loaded, and a mapping that is not touched costs
// nothing. Archives are read as a whole, so of several one at a time is open.
class OpenFiles {
 public:
  explicit OpenFiles(const CheckpointFiles& found)
      : files_(found.files), links_(found.links), open_(files_.size()) {}

  TensorSource& open(size_t file) {
    if (!open_[file]) open_[file] = checkpoint::open_tensor_source(files_[file], links_);
    return *open_[file];
  }
  void end_check(size_t file) {
    if (files_.size() > 1 && files_[file].extension() != ".safetensors") open_[file].reset();
  }
  void end_loading(size_t file) { open_[file].reset(); }

 private:
  const std::vector<fs::path>& files_;
  const files::Links links_;
  std::vector<std::unique_ptr<TensorSource>> open_;
};

}  // namespace

LoadReport load_checkpoint_in_model(torch::nn::Module& module, const fs::path& checkpoint,
                                    const LoadModelOptions& options) {
  const compat::OrdinaryTensors ordinary;
  const CheckpointFiles found =
      checkpoint::find_checkpoint_files(checkpoint, links_of(options.follow_links));
  OpenFiles files(found);
  LoadPlan plan(get_state_dict(module), options);
  for (size_t file = 0; file < found.files.size(); ++file) {
    plan.add(files.open(file), file, found);
    files.end_check(file);
  }
  LoadReport report = plan.check(checkpoint.string());
  for (size_t file = 0; file < found.files.size(); ++file) {
    plan.load(files.open(file), file, found.files[file].string());
    files.end_loading(file);
  }
  plan.finish();
  return report;
}

LoadReport load_state_dict_in_model(torch::nn::Module& module, const NamedTensors& tensors,
                                    const LoadModelOptions& options) {
  const compat::OrdinaryTensors ordinary;
  const auto source = checkpoint::tensor_source_of(tensors);
  LoadPlan plan(get_state_dict(module), options);
  plan.add(*source, 0, {});
  LoadReport report = plan.check("");
  plan.load(*source, 0, "");
  plan.finish();
  return report;
}

LoadReport load_checkpoint_and_dispatch(torch::nn::Module& module, const fs::path& checkpoint,
                                        const LoadModelOptions& options) {
  std::set<std::string> devices;
  for (const auto& [name, device] : options.device_map) devices.insert(device.str());
  if (devices.size() > 1) {
    throw UsageError({.what = "the device map names more than one device: " +
                              checkpoint::name_list({devices.begin(), devices.end()}),
                      .hint = "use load_checkpoint_in_model() and move the activations yourself"});
  }
  LoadPlan places(get_state_dict(module), options);
  places.check_devices();
  LoadReport report = load_checkpoint_in_model(module, checkpoint, options);
  if (has_empty_weights(module)) {  // what the checkpoint does not hold
    materialize(module, options.device_map.empty() ? c10::Device(c10::kCPU)
                                                   : options.device_map.begin()->second);
  }
  places.move_all();
  return report;
}

ModelStateDict load_state_dict(const fs::path& checkpoint, const LoadStateDictOptions& options) {
  const CheckpointFiles found =
      checkpoint::find_checkpoint_files(checkpoint, links_of(options.follow_links));
  ModelStateDict state;
  for (size_t file = 0; file < found.files.size(); ++file) {
    const auto source = checkpoint::open_tensor_source(found.files[file], found.links);
    const auto add = [&](const std::string& name, const std::string& stored) {
      const auto placed = found.placed.find(name);
      if (placed != found.placed.end() && placed->second != file) return;
      if (!state.contains(name)) state.insert(name, source->tensor(stored));
    };
    for (const auto& tensor : source->tensors()) add(tensor.name, tensor.name);
    for (const auto& [alias, name] : source->aliases()) {
      if (!state.contains(alias) && state.contains(name)) state.insert(alias, state[name]);
    }
  }
  return state;
}

}  // namespace accelerate

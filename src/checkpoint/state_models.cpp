#include <torch/nn/module.h>

#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/model_files.h"
#include "checkpoint/state_names.h"
#include "checkpoint/state_parts.h"

namespace accelerate::checkpoint {
namespace {

constexpr const char* kSafeStem = "model";
constexpr const char* kSafeExtension = ".safetensors";
constexpr const char* kArchiveStem = "pytorch_model";
constexpr const char* kArchiveExtension = ".bin";

TorchValue as_archive(const NamedTensors& tensors) {
  TorchDict dict(TorchDict::Kind::kOrderedDict);
  for (const auto& item : tensors) dict.add(item.key(), item.value().detach());
  return dict;
}

std::string shape_text(at::IntArrayRef shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? "," : "") + std::to_string(shape[i]);
  return text + "]";
}

bool is_same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.is_same(b) || (a.numel() > 0 && a.data_ptr() == b.data_ptr() && a.sizes() == b.sizes());
}

class SavedModels final : public StatePart {
 public:
  SavedModels(std::vector<ModelToSave> models, bool safe)
      : models_(std::move(models)), safe_(safe) {}

  void save(Snapshot& snapshot) const override {
    snapshot.facts()["models"] = models_.size();
    if (!snapshot.writes_shared_files()) return;
    for (size_t i = 0; i < models_.size(); ++i) {
      if (safe_) {
        snapshot.add(numbered_file(kSafeStem, i, kSafeExtension), models_[i].weights,
                     {{"format", "pt"}});
      } else {
        snapshot.add(numbered_file(kArchiveStem, i, kArchiveExtension),
                     as_archive(models_[i].weights));
      }
    }
  }
  void check(StateReader& /*reader*/) override {}
  void apply() override {}

 private:
  std::vector<ModelToSave> models_;
  bool safe_;
};

class LoadedModels final : public StatePart {
 public:
  LoadedModels(std::vector<std::shared_ptr<torch::nn::Module>> models, bool all_are_here)
      : models_(std::move(models)), all_are_here_(all_are_here) {}

  void save(Snapshot& /*snapshot*/) const override {}

  void check(StateReader& reader) override {
    const size_t safe = reader.count(kSafeStem, kSafeExtension);
    const size_t saved = safe > 0 ? safe : reader.count(kArchiveStem, kArchiveExtension);
    if (all_are_here_) reader.require_count("models", saved, models_.size());
    for (size_t i = 0; i < models_.size() && i < saved; ++i) {
      const std::string name = safe > 0 ? numbered_file(kSafeStem, i, kSafeExtension)
                                        : numbered_file(kArchiveStem, i, kArchiveExtension);
      NamedTensors tensors = load_state_dict(reader.file(name));
      check_names(*models_[i], tensors, name, reader);
      check_shapes(*models_[i], tensors, name, reader);
      tensors_.push_back(std::move(tensors));
    }
  }

  void apply() override {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      load_state_dict_in_model(*models_[i], tensors_[i], {.strict = false});
    }
  }

 private:
  static void check_names(const torch::nn::Module& module, const NamedTensors& saved,
                          const std::string& file, StateReader& reader) {
    const ModelStateDict own = get_state_dict(module);
    std::vector<std::string> missing, unexpected;
    for (const auto& item : own) {
      if (saved.contains(item.key())) continue;
      // One of several names of a tied tensor is enough.
      bool tied = false;
      for (const auto& other : own) {
        tied = tied || (saved.contains(other.key()) && is_same_memory(item.value(), other.value()));
      }
      if (!tied) missing.push_back(item.key());
    }
    for (const auto& item : saved) {
      if (!own.contains(item.key())) unexpected.push_back(item.key());
    }
    if (missing.empty() && unexpected.empty()) return;
    std::string what;
    if (!missing.empty()) what += "the file lacks " + name_list(missing);
    if (!unexpected.empty()) {
      what += (what.empty() ? "" : "; ") + ("the model has no " + name_list(unexpected));
    }
    if (!reader.strict()) return reader.note(file + ": " + what);
    throw CheckpointError({.what = what,
                           .where = reader.where(file),
                           .hint = "prepare the model that was saved, or pass {.strict = false}"});
  }

  static void check_shapes(const torch::nn::Module& module, const NamedTensors& saved,
                           const std::string& file, StateReader& reader) {
    std::vector<std::string> wrong, cast;
    for (const auto& item : get_state_dict(module)) {
      const at::Tensor* tensor = saved.find(item.key());
      if (tensor == nullptr) continue;
      if (tensor->sizes() != item.value().sizes()) {
        wrong.push_back(item.key() + " is " + shape_text(tensor->sizes()) + " in the file and " +
                        shape_text(item.value().sizes()) + " in the model");
      } else if (tensor->scalar_type() != item.value().scalar_type()) {
        cast.push_back(item.key());
      }
    }
    if (!cast.empty()) {
      reader.note(file + ": these have another type in the model and are cast: " + name_list(cast));
    }
    if (wrong.empty()) return;
    throw CheckpointError({.what = "shapes differ: " + name_list(wrong),
                           .where = reader.where(file),
                           .hint = "prepare the model that was saved"});
  }

  std::vector<std::shared_ptr<torch::nn::Module>> models_;
  bool all_are_here_;
  std::vector<NamedTensors> tensors_;
};

}  // namespace

std::unique_ptr<StatePart> save_models(std::vector<ModelToSave> models, bool safe_serialization) {
  return std::make_unique<SavedModels>(std::move(models), safe_serialization);
}

std::unique_ptr<StatePart> load_models(std::vector<std::shared_ptr<torch::nn::Module>> models,
                                       bool all_are_here) {
  return std::make_unique<LoadedModels>(std::move(models), all_are_here);
}

}  // namespace accelerate::checkpoint

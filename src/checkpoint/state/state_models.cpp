#include <torch/nn/module.h>

#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/model_files.h"
#include "checkpoint/model/load_plan.h"
#include "checkpoint/model/load_source.h"
#include "checkpoint/name_list.h"
#include "checkpoint/state/state_parts.h"

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

// A file, open from the check to the loading: what was checked is what is loaded, and its pages go
// as soon as they are copied.
class ModelFile {
 public:
  ModelFile(ModelStateDict own, const std::filesystem::path& file)
      : where_(file.string()),
        own_(std::move(own)),
        source_(open_tensor_source(file)),
        plan_(own_, options()) {
    plan_.add(*source_, 0, {});
  }

  // Throws CheckpointError that lists what does not fit.
  void check(const std::string& name, StateReader& reader) {
    std::string problems = names_problem();
    if (!problems.empty() && !reader.strict()) {
      reader.note(name + ": " + problems);
      problems.clear();
    }
    try {
      plan_.check(where_);
    } catch (const CheckpointError& error) {
      problems += (problems.empty() ? "" : "; ") + error.message();
    }
    if (!problems.empty()) {
      throw CheckpointError({.what = problems,
                             .where = where_,
                             .hint = "prepare the model that was saved; {.strict = false} passes "
                                     "over names, not over shapes, and an optimizer must have the "
                                     "parameters that were saved in any case"});
    }
    note_casts(name, reader);
  }

  void load() {
    plan_.load(*source_, 0, where_);
    plan_.finish();
    source_.reset();
  }

 private:
  static const LoadModelOptions& options() {
    static const LoadModelOptions defaults;  // strictness is a matter of the reader
    return defaults;
  }

  std::string names_problem() const {
    const LoadReport report = plan_.report();
    std::string what;
    if (!report.missing_keys.empty()) what = "the file lacks " + name_list(report.missing_keys);
    if (!report.unexpected_keys.empty()) {
      what +=
          (what.empty() ? "" : "; ") + ("the model has no " + name_list(report.unexpected_keys));
    }
    return what;
  }

  void note_casts(const std::string& name, StateReader& reader) const {
    std::vector<std::string> cast;
    for (const StoredTensor& stored : source_->tensors()) {
      const at::Tensor* tensor = own_.find(stored.name);
      if (tensor != nullptr && tensor->scalar_type() != stored.dtype) cast.push_back(stored.name);
    }
    if (cast.empty()) return;
    reader.note(name + ": these have another type in the model and are cast: " + name_list(cast));
  }

  std::string where_;
  ModelStateDict own_;  // what is loaded into
  std::unique_ptr<TensorSource> source_;
  LoadPlan plan_;
};

class LoadedModels final : public StatePart {
 public:
  LoadedModels(std::vector<std::shared_ptr<torch::nn::Module>> models, bool all_are_here,
               ModelTargets targets)
      : models_(std::move(models)), all_are_here_(all_are_here), targets_(std::move(targets)) {}

  void save(Snapshot& /*snapshot*/) const override {}

  void check(StateReader& reader) override {
    const size_t safe = reader.count(kSafeStem, kSafeExtension);
    const size_t saved = safe > 0 ? safe : reader.count(kArchiveStem, kArchiveExtension);
    if (all_are_here_) reader.require_count("models", saved, models_.size());
    for (size_t i = 0; i < models_.size() && i < saved; ++i) {
      const std::string name = safe > 0 ? numbered_file(kSafeStem, i, kSafeExtension)
                                        : numbered_file(kArchiveStem, i, kArchiveExtension);
      files_.emplace_back(targets_.tensors(*models_[i]), reader.file(name)).check(name, reader);
    }
  }

  void apply() override {
    for (size_t i = 0; i < files_.size(); ++i) {
      files_[i].load();
      targets_.loaded(*models_[i]);
    }
  }

 private:
  std::vector<std::shared_ptr<torch::nn::Module>> models_;
  bool all_are_here_;
  ModelTargets targets_;
  std::deque<ModelFile> files_;
};

}  // namespace

std::unique_ptr<StatePart> save_models(std::vector<ModelToSave> models, bool safe_serialization) {
  return std::make_unique<SavedModels>(std::move(models), safe_serialization);
}

std::unique_ptr<StatePart> load_models(std::vector<std::shared_ptr<torch::nn::Module>> models,
                                       bool all_are_here, ModelTargets targets) {
  return std::make_unique<LoadedModels>(std::move(models), all_are_here, std::move(targets));
}

}  // namespace accelerate::checkpoint

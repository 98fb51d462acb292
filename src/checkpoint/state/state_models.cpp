#include <torch/nn/module.h>

#include <deque>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/model_files.h"
#include "checkpoint/model/load_plan.h"
#include "checkpoint/model/load_source.h"
#include "checkpoint/name_list.h"
#include "checkpoint/state/model_pieces.h"
#include "checkpoint/state/state_parts.h"
#include "files/dcp/dcp_folder.h"
#include "files/manifest/checkpoint_names.h"
#include "files/merge/merge_source.h"

namespace accelerate::checkpoint {
namespace {

constexpr const char* kSafeStem = "model";
constexpr const char* kSafeExtension = ".safetensors";
constexpr const char* kArchiveStem = "pytorch_model";
constexpr const char* kArchiveExtension = ".bin";
constexpr const char* kInPieces = "models_in_pieces";  // their numbers; only where there are any

TorchValue as_archive(const NamedTensors& tensors) {
  TorchDict dict(TorchDict::Kind::kOrderedDict);
  for (const auto& item : tensors) dict.add(item.key(), item.value().detach());
  return dict;
}

class SavedModels final : public StatePart {
 public:
  SavedModels(std::vector<ModelToSave> models, bool safe, int rank)
      : models_(std::move(models)), safe_(safe), rank_(rank) {}

  void save(Snapshot& snapshot) const override {
    snapshot.facts()["models"] = models_.size();
    TensorsFile pieces;
    std::vector<size_t> in_pieces;
    for (size_t i = 0; i < models_.size(); ++i) {
      if (!models_[i].layout.empty()) {
        add_model_pieces(models_[i], i, snapshot.writes_shared_files(), pieces);
        in_pieces.push_back(i);
        continue;
      }
      if (!snapshot.writes_shared_files()) continue;
      if (safe_) {
        snapshot.add(numbered_file(kSafeStem, i, kSafeExtension), models_[i].weights,
                     {{"format", "pt"}});
      } else {
        snapshot.add(numbered_file(kArchiveStem, i, kArchiveExtension),
                     as_archive(models_[i].weights));
      }
    }
    if (in_pieces.empty()) return;
    snapshot.facts()[kInPieces] = in_pieces;
    if (!snapshot.takes_pieces_of(rank_)) return;
    // Without tensors too: whoever loads it knows by that that the rank had none.
    snapshot.add(files::model_pieces_file(rank_), std::move(pieces));
  }
  void check(StateReader& /*reader*/) override {}
  void apply() override {}

 private:
  std::vector<ModelToSave> models_;
  bool safe_;
  int rank_;
};

// Files, open from the check to the loading: what was checked is what is loaded, and its pages go
// as soon as they are copied.
class ModelFile {
 public:
  ModelFile(ModelStateDict own, std::unique_ptr<TensorSource> source, std::string where)
      : where_(std::move(where)),
        own_(std::move(own)),
        source_(std::move(source)),
        plan_(own_, options()) {
    plan_.add(*source_, 0, {});
  }

  // Throws CheckpointError that lists what does not fit; `misfits` are known already.
  void check(const std::string& name, const std::string& misfits, StateReader& reader) {
    std::string problems = names_problem();
    if (!problems.empty() && !reader.strict()) {
      reader.note(name + ": " + problems);
      problems.clear();
    }
    if (!misfits.empty()) {
      problems +=
          (problems.empty() ? "" : "; ") + ("the checkpoint does not fit the model: " + misfits);
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
    const std::vector<std::string> saved = saved_models(reader);
    if (all_are_here_) reader.require_count("models", saved.size(), models_.size());
    const ModelPieceFiles pieces(reader);
    for (size_t i = 0; i < models_.size() && i < saved.size(); ++i) {
      ModelState own = targets_.state(*models_[i]);
      if (saved[i].empty()) {
        const std::string name = files::model_pieces_file(reader.rank());
        check_cut(pieces.model(i), std::move(own), pieces.absent_file(), name, reader);
        continue;
      }
      const std::filesystem::path file = is_folder(reader, saved[i])
                                             ? std::filesystem::path(reader.where(saved[i]))
                                             : reader.file(saved[i]);
      std::unique_ptr<TensorSource> source = open_tensor_source(file);
      if (own.is_whole()) {
        files_.emplace_back(std::move(own.tensors), std::move(source), file.string())
            .check(saved[i], "", reader);
      } else {
        check_cut(whole_tensors(std::move(source)), std::move(own), "", saved[i], reader);
      }
    }
  }

  void apply() override {
    for (size_t i = 0; i < files_.size(); ++i) {
      files_[i].load();
      targets_.loaded(*models_[i]);
    }
  }

 private:
  // The file or the folder of each model; empty for those in pieces.
  static std::vector<std::string> saved_models(const StateReader& reader) {
    std::set<size_t> in_pieces;
    if (const auto found = reader.facts().find(kInPieces); found != reader.facts().end()) {
      in_pieces = found->get<std::set<size_t>>();
    }
    const bool is_safe = reader.count(kSafeStem, kSafeExtension) > 0;
    std::vector<std::string> saved;
    while (true) {
      const size_t number = saved.size();
      const std::string safe = numbered_file(kSafeStem, number, kSafeExtension);
      const std::string archive = numbered_file(kArchiveStem, number, kArchiveExtension);
      if (in_pieces.contains(number)) {
        saved.emplace_back();
      } else if (reader.has(safe)) {
        saved.push_back(safe);
      } else if (!is_safe && reader.has(archive)) {
        saved.push_back(archive);
      } else if (const std::string folder = foreign_folder(number); is_folder(reader, folder)) {
        saved.push_back(folder);
      } else if (const std::string tag = deepspeed_tag(number); is_folder(reader, tag)) {
        saved.push_back(tag);
      } else {
        return saved;
      }
    }
  }

  // What sharded runs of Python have in place of a file.
  static std::string foreign_folder(size_t number) { return files::dcp_model_folder(number); }
  static std::string deepspeed_tag(size_t number) {
    return numbered_file(kArchiveStem, number, "");
  }
  static bool is_folder(const StateReader& reader, const std::string& name) {
    return !reader.is_ours() && files::holds_foreign_shards(reader.where(name));
  }

  // What this rank needs of tensors that are in pieces, in the checkpoint or here.
  void check_cut(const SavedTensors& saved, ModelState own, const std::string& absent_file,
                 const std::string& name, StateReader& reader) {
    auto source = std::make_unique<CutSource>(saved, own, absent_file);
    const std::string misfits = source->problems();
    files_.emplace_back(std::move(own.tensors), std::move(source), reader.where(name))
        .check(name, misfits, reader);
  }

  std::vector<std::shared_ptr<torch::nn::Module>> models_;
  bool all_are_here_;
  ModelTargets targets_;
  std::deque<ModelFile> files_;
};

}  // namespace

std::unique_ptr<StatePart> save_models(std::vector<ModelToSave> models, bool safe_serialization,
                                       int rank) {
  return std::make_unique<SavedModels>(std::move(models), safe_serialization, rank);
}

std::unique_ptr<StatePart> load_models(std::vector<std::shared_ptr<torch::nn::Module>> models,
                                       bool all_are_here, ModelTargets targets) {
  return std::make_unique<LoadedModels>(std::move(models), all_are_here, std::move(targets));
}

}  // namespace accelerate::checkpoint

// Models in folders, for tests that change what is in the files.
#pragma once

#include <accelerate/model_files.h>
#include <accelerate/safetensors.h>
#include <accelerate/transformers/pretrained.h>

#include <functional>
#include <memory>
#include <string>

#include "transformers/checkpoints.h"
#include "transformers/small_models.h"

namespace accelerate::test {

// A model in a folder, with the tensors that are in the file.
struct Saved {
  CheckpointFolder folder{};
  std::shared_ptr<PretrainedModel> model{};

  explicit Saved(ModelTask task, const ModelConfig& config) : model(random_model(task, config)) {
    model->eval();
    transformers::save_pretrained(*model, folder.path());
  }

  fs::path weights() const { return folder.path() / "model.safetensors"; }

  NamedTensors tensors() const {
    NamedTensors result;
    for (const auto& item : load_state_dict(weights())) {
      result.insert(item.key(), item.value().clone());
    }
    return result;
  }

  void write(const NamedTensors& tensors) const { save_safetensors(weights(), tensors); }

  // With other names: an empty one leaves the tensor out.
  void rename(const std::function<std::string(const std::string&)>& name) const {
    NamedTensors renamed;
    for (const auto& item : tensors()) {
      if (const std::string now = name(item.key()); !now.empty()) renamed.insert(now, item.value());
    }
    write(renamed);
  }

  void set(const std::string& key, const transformers::ConfigValue& value) const {
    ModelConfig config = ModelConfig::from_file(folder.path());
    config.set(key, value);
    write_file(folder.path() / "config.json", config.to_json());
  }
};

// Loads and keeps the report.
template <class Auto>
std::shared_ptr<PretrainedModel> load(const Saved& saved, transformers::PretrainedReport& report,
                                      transformers::PretrainedOptions options = {}) {
  options.report = [&](const transformers::PretrainedReport& given) { report = given; };
  return Auto::from_pretrained(saved.folder.text(), options);
}

inline std::string replaced(std::string text, const std::string& what, const std::string& by) {
  if (const size_t at = text.find(what); at != text.npos) text.replace(at, what.size(), by);
  return text;
}

}  // namespace accelerate::test

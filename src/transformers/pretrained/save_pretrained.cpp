#include <ATen/ATen.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/model_files.h"
#include "accelerate/safetensors.h"
#include "accelerate/transformers/pretrained.h"
#include "files/durable/replace_file.h"
#include "files/safetensors/model_folder.h"
#include "files/safetensors/shard_index.h"
#include "model_config/json_text.h"
#include "model_config/parse.h"
#include "transformers/pretrained/dtype_names.h"
#include "transformers/pretrained/generation_settings.h"

namespace accelerate::transformers {
namespace {

namespace fs = std::filesystem;
using files::kSafetensorsFiles;

void write_model_file(const fs::path& path, const std::string& text) {
  files::replace_file(path,
                      [&](files::ByteSink& sink) { sink.write(std::as_bytes(std::span(text))); });
}

const char* saved_dtype(const PretrainedModel& model) {
  for (const at::Tensor& parameter : model.parameters()) {
    if (const char* name = name_of_dtype(parameter.scalar_type()); name != nullptr) return name;
  }
  return "float32";
}

ModelConfig saved_config(const PretrainedModel& model) {
  ModelConfig config = model.config();
  remove_generation_settings(config);
  // Files of today have the names of the labels in place of their number.
  if (config.has("num_labels")) config.set_num_labels(config.num_labels());
  for (const char* key : {"_name_or_path", "torch_dtype"}) config.remove(key);
  config.set_texts("architectures", {model.architecture()});
  config.set("dtype", saved_dtype(model));
  return config;
}

// What an earlier model has left: the new one takes the names of some.
void remove_other_weights(const fs::path& folder, const files::ShardPlan& plan) {
  std::vector<fs::path> stale;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_weights = files::is_model_file(name, "model", ".safetensors") ||
                            files::is_model_file(name, "pytorch_model", ".bin");
    bool is_new = plan.is_sharded() && name == kSafetensorsFiles.index();
    for (const files::Shard& shard : plan.shards) is_new = is_new || shard.file == name;
    if (is_weights && !is_new) stale.push_back(entry.path());
  }
  for (const fs::path& path : stale) fs::remove(path);
}

// A function that writes in another format under that name would leave a folder that nothing reads.
void require_safetensors(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file, error)) return;  // it writes elsewhere
  try {
    const SafetensorsFile written(file);
  } catch (const CheckpointError& problem) {
    throw CheckpointError(
        {.what = "what save_function has written is not a safetensors file: " + problem.message(),
         .where = file.string(),
         .hint = "accelerate::save(tensors, path) writes one"});
  }
}

// With the caller's function for the files: it need not write them where they are expected at once,
// so nothing is promised of the moments in between.
void save_by_function(const PretrainedModel& model, const fs::path& folder,
                      const SavePretrainedOptions& options) {
  const ModelStateDict state = get_state_dict(model);
  std::vector<files::ShardedTensor> tensors;
  uint64_t number = 0;
  for (const auto& item : state) {
    tensors.push_back({.name = item.key(), .bytes = item.value().nbytes(), .storage = number++});
  }
  const files::ShardPlan plan = files::plan_shards(
      tensors, options.max_shard_size.bytes(), kSafetensorsFiles.stem, kSafetensorsFiles.suffix);
  remove_other_weights(folder, plan);
  files::ShardIndex index{.total_size = plan.total_size};
  for (const files::Shard& shard : plan.shards) {
    NamedTensors part;
    for (const std::string& name : shard.tensors) {
      part.insert(name, state[name].detach());
      index.weight_map.emplace(name, shard.file);
    }
    options.save_function(part, folder / shard.file);
    require_safetensors(folder / shard.file);
  }
  if (plan.is_sharded()) {
    write_model_file(folder / kSafetensorsFiles.index(), files::shard_index_text(index));
  }
}

// The index of transformers has one number more than that of save_model().
void complete_index(const PretrainedModel& model, const fs::path& folder) {
  const fs::path path = folder / kSafetensorsFiles.index();
  std::error_code error;
  if (!fs::exists(path, error)) return;
  int64_t parameters = 0;
  for (const at::Tensor& parameter : model.parameters()) parameters += parameter.numel();
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  nlohmann::json index = model_config::parse_config(text, path.string());
  index["metadata"]["total_parameters"] = parameters;
  write_model_file(path, model_config::python_json(index));
}

}  // namespace

void save_pretrained(const PretrainedModel& model, const fs::path& folder,
                     const SavePretrainedOptions& options) try {
  if (!options.is_main_process) return;
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error)) {
    throw UsageError({.what = "a model is saved into a folder, but this is a file",
                      .where = folder.string(),
                      .hint = "name a folder; it is created if it does not exist"});
  }
  fs::create_directories(folder, error);
  if (error) {
    throw CheckpointError(
        {.what = "the folder cannot be created: " + error.message(), .where = folder.string()});
  }
  if (options.save_function) {
    save_by_function(model, folder, options);
  } else {
    save_model(model, folder, {.max_shard_size = options.max_shard_size});
  }
  complete_index(model, folder);
  write_model_file(folder / "config.json", saved_config(model).to_json());
  if (model.can_generate()) {
    const ModelConfig& own = model.generation_config();
    const bool is_empty = own.to_json() == ModelConfig().to_json();
    write_model_file(folder / "generation_config.json",
                     (is_empty ? generation_settings_of(model.config()) : own).to_json());
  } else {
    fs::remove(folder / "generation_config.json");
  }
} catch (const fs::filesystem_error& error) {
  throw CheckpointError(
      {.what = "the model cannot be saved: " + error.code().message(),
       .where = error.path1().empty() ? folder.string() : error.path1().string()});
}

}  // namespace accelerate::transformers

#include "config/deepspeed_document.h"

#include <string>
#include <utility>

#include "accelerate/errors.h"

namespace accelerate::config {
namespace {

constexpr const char* kDefaultStage = "2";

bool is_auto(const FileNode* node) { return node != nullptr && node->text == "auto"; }

FileNode number_or_auto(const Settings& settings, const char* name) {
  const auto& text = settings[name].text;
  return text && *text != "auto" ? FileNode::plain(*text) : FileNode::string("auto");
}

FileNode device_of(const Settings& settings, const std::string& part) {
  return FileNode::string(settings["offload_" + part + "_device"].text.value_or("none"));
}

FileNode nvme_path_of(const Settings& settings, const std::string& part) {
  const auto& path = settings["offload_" + part + "_nvme_path"].text;
  return path ? FileNode::string(*path) : FileNode();
}

FileNode gathers_weights(const Settings& settings) {
  return FileNode::plain(settings.is_on("zero3_save_16bit_model") ? "true" : "false");
}

FileNode from_settings(const Settings& settings) {
  FileNode zero = FileNode::map();
  zero.set("stage", FileNode::plain(settings["zero_stage"].text.value_or(kDefaultStage)));
  for (const std::string part : {"optimizer", "param"}) {
    FileNode offload = FileNode::map();
    offload.set("device", device_of(settings, part));
    offload.set("nvme_path", nvme_path_of(settings, part));
    zero.set("offload_" + part, std::move(offload));
  }
  zero.set("stage3_gather_16bit_weights_on_model_save", gathers_weights(settings));

  FileNode document = FileNode::map();
  document.set("train_batch_size", FileNode::string("auto"));
  document.set("train_micro_batch_size_per_gpu", FileNode::string("auto"));
  document.set("gradient_accumulation_steps",
               number_or_auto(settings, "gradient_accumulation_steps"));
  document.set("gradient_clipping", number_or_auto(settings, "gradient_clipping"));
  document.set("zero_optimization", std::move(zero));
  return document;
}

void fill_if_auto(FileNode& map, const char* key, FileNode value) {
  if (is_auto(map.find(key))) map.set(key, std::move(value));
}

// "auto" of what settings know; the rest of it is for prepare().
FileNode filled_in(FileNode document, const Settings& settings) {
  for (const char* name : {"gradient_accumulation_steps", "gradient_clipping"}) {
    fill_if_auto(document, name, number_or_auto(settings, name));
  }
  FileNode zero = *document.find("zero_optimization");
  fill_if_auto(zero, "stage", FileNode::plain(settings["zero_stage"].text.value_or(kDefaultStage)));
  fill_if_auto(zero, "stage3_gather_16bit_weights_on_model_save", gathers_weights(settings));
  for (const std::string part : {"optimizer", "param"}) {
    const FileNode* present = zero.find("offload_" + part);
    if (present == nullptr) continue;
    FileNode offload = *present;
    fill_if_auto(offload, "device", device_of(settings, part));
    fill_if_auto(offload, "nvme_path", nvme_path_of(settings, part));
    zero.set("offload_" + part, std::move(offload));
  }
  document.set("zero_optimization", std::move(zero));
  return document;
}

}  // namespace

DeepspeedDocument deepspeed_document(const Settings& settings, const std::optional<FileNode>& file,
                                     const std::filesystem::path& path) {
  if (file && file->find("zero_optimization") == nullptr) {
    throw ConfigError({.what = "the DeepSpeed configuration has no zero_optimization",
                       .where = path.string(),
                       .hint = "\"zero_optimization\": {\"stage\": 2}"});
  }
  DeepspeedDocument result;
  result.document = file ? filled_in(*file, settings) : from_settings(settings);
  // Printing is the program's own matter.
  if (result.document.find("steps_per_print") == nullptr) {
    result.document.set("steps_per_print", FileNode::string("inf"));
  }
  const FileNode* stage = result.document.find("zero_optimization")->find("stage");
  const bool is_stage_3 = stage != nullptr && stage->text == "3";
  const auto& init = settings["zero3_init_flag"].text;
  result.shards_at_init = is_stage_3 && (!init || *init == "true");
  return result;
}

}  // namespace accelerate::config

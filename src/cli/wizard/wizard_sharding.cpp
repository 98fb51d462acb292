#include "cli/wizard/wizard_sharding.h"

#include <string>
#include <vector>

#include "cli/wizard/wizard_answers.h"

namespace accelerate::cli {
namespace {

using config::FileNode;

FileNode truth(bool value) { return FileNode::plain(value ? "true" : "false"); }

std::string anything(const std::string&) { return ""; }

using Capabilities = std::span<const config::CapabilityRow>;

void ask_fsdp(const Asking& asking, FileNode& document, Capabilities capabilities) {
  document.set("distributed_type", FileNode::string("FSDP"));
  FileNode fsdp = FileNode::map();
  fsdp.set("fsdp_version", FileNode::plain("2"));
  fsdp.set("fsdp_reshard_after_forward",
           confirm_value(asking,
                         "Free gathered parameters after forward? (less memory, more "
                         "communication)",
                         "fsdp_reshard_after_forward"));
  if (is_in_this_build(config::Capability::kOffload, capabilities)) {
    fsdp.set("fsdp_offload_params",
             confirm_value(asking, "Keep parameters and gradients in host memory?",
                           "fsdp_offload_params"));
  }
  fsdp.set("fsdp_auto_wrap_policy",
           choose_value(asking, "How is the model split into units?", "fsdp_auto_wrap_policy"));
  const std::string wrap = fsdp.find("fsdp_auto_wrap_policy")->text;
  if (wrap == "TRANSFORMER_BASED_WRAP") {
    const std::string classes = asking.prompter.ask(
        "Names of the layers that become units, separated by commas (empty: decided by the model)",
        "", anything);
    if (!classes.empty()) {
      fsdp.set("fsdp_transformer_layer_cls_to_wrap", FileNode::string(classes));
    }
  } else if (wrap == "SIZE_BASED_WRAP") {
    fsdp.set("fsdp_min_num_params",
             FileNode::plain(ask_value(asking, "Least number of parameters of a unit",
                                       "fsdp_min_num_params", "100000000")));
  }
  fsdp.set("fsdp_state_dict_type",
           choose_value(asking, "What do checkpoints hold?", "fsdp_state_dict_type",
                        "SHARDED_STATE_DICT", "LOCAL_STATE_DICT"));  // of version 1 alone
  if (is_in_this_build(config::Capability::kRecomputation, capabilities)) {
    fsdp.set("fsdp_activation_checkpointing",
             confirm_value(asking, "Recompute activations in backward instead of keeping them?",
                           "fsdp_activation_checkpointing"));
  }
  fsdp.set("fsdp_cpu_ram_efficient_loading",
           truth(asking.prompter.confirm("Read checkpoints on the first rank only?", true)));
  document.set("fsdp_config", std::move(fsdp));
}

void ask_deepspeed_stage(const Asking& asking, FileNode& deepspeed, Capabilities capabilities) {
  const size_t stage =
      asking.prompter.choose("What does ZeRO shard?",
                             {"nothing", "optimizer state", "gradients too", "parameters too"}, 2);
  deepspeed.set("zero_stage", FileNode::plain(std::to_string(stage)));
  if (stage >= 2 && is_in_this_build(config::Capability::kOffload, capabilities)) {
    deepspeed.set("offload_optimizer_device", choose_value(asking, "Where is optimizer state kept?",
                                                           "offload_optimizer_device"));
    deepspeed.set("offload_param_device",
                  choose_value(asking, "Where are parameters kept?", "offload_param_device"));
  }
  for (const std::string part : {"optimizer", "param"}) {
    const FileNode* device = deepspeed.find("offload_" + part + "_device");
    if (device == nullptr || device->text != "nvme") continue;
    deepspeed.set("offload_" + part + "_nvme_path",
                  FileNode::string(
                      asking.prompter.ask("NVMe folder of the " + part + "s", "/nvme", anything)));
  }
  deepspeed.set(
      "gradient_accumulation_steps",
      FileNode::plain(ask_value(asking, "Batches whose gradients are accumulated for one update",
                                "gradient_accumulation_steps", "1")));
  if (stage == 3) {
    deepspeed.set(
        "zero3_save_16bit_model",
        confirm_value(asking, "Gather 16-bit weights when saving?", "zero3_save_16bit_model"));
  }
  deepspeed.set("zero3_init_flag",
                truth(stage == 3 &&
                      asking.prompter.confirm("Shard parameters while the model is built?", true)));
}

void ask_deepspeed(const Asking& asking, FileNode& document, Capabilities capabilities) {
  document.set("distributed_type", FileNode::string("DEEPSPEED"));
  FileNode deepspeed = FileNode::map();
  const std::string file = asking.prompter.ask(
      "DeepSpeed's own JSON file (empty: answer questions instead)", "", anything);
  if (file.empty()) {
    ask_deepspeed_stage(asking, deepspeed, capabilities);
  } else {
    deepspeed.set("deepspeed_config_file", FileNode::string(file));
    deepspeed.set("zero3_init_flag", truth(false));
  }
  document.set("deepspeed_config", std::move(deepspeed));
}

}  // namespace

void ask_sharding(const Asking& asking, FileNode& document,
                  std::span<const config::CapabilityRow> capabilities) {
  struct Way {
    const char* type;  // in the file that is replaced
    const char* answer;
    void (*ask)(const Asking&, FileNode&, Capabilities);
  };
  std::vector<Way> ways;
  if (is_in_this_build(config::Capability::kFsdp, capabilities)) {
    ways.push_back({"FSDP", "sharded, as FSDP calls it", ask_fsdp});
  }
  if (is_in_this_build(config::Capability::kDeepspeed, capabilities)) {
    ways.push_back({"DEEPSPEED", "sharded, as DeepSpeed calls it", ask_deepspeed});
  }
  if (ways.empty()) return;
  std::vector<std::string> answers{"every process holds the whole model"};
  const auto present = asking.present.find("distributed_type");
  size_t proposed = 0;
  for (const Way& way : ways) {
    answers.emplace_back(way.answer);
    if (present != asking.present.end() && present->second == way.type) {
      proposed = answers.size() - 1;
    }
  }
  const size_t chosen =
      asking.prompter.choose("How is the model distributed over the processes?", answers, proposed);
  if (chosen > 0) ways[chosen - 1].ask(asking, document, capabilities);
}

}  // namespace accelerate::cli

#include "cli/wizard_sharding.h"

namespace accelerate::cli {
namespace {

using config::FileNode;

FileNode truth(bool value) { return FileNode::plain(value ? "true" : "false"); }

FileNode chosen(Prompter& prompter, const std::string& question,
                const std::vector<std::string>& options) {
  return FileNode::string(options[prompter.choose(question, options, 0)]);
}

std::string whole_number(const std::string& answer) {
  const bool is_number = !answer.empty() && answer.size() < 10 &&
                         answer.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? "" : "A whole number is needed.";
}

std::string anything(const std::string&) { return ""; }

void ask_fsdp(Prompter& prompter, FileNode& document) {
  document.set("distributed_type", FileNode::string("FSDP"));
  FileNode fsdp = FileNode::map();
  fsdp.set("fsdp_version", FileNode::plain("2"));
  fsdp.set("fsdp_reshard_after_forward",
           truth(prompter.confirm("Free gathered parameters after forward? (less memory, more "
                                  "communication)",
                                  true)));
  fsdp.set("fsdp_offload_params",
           truth(prompter.confirm("Keep parameters and gradients in host memory?", false)));
  fsdp.set("fsdp_auto_wrap_policy",
           chosen(prompter, "How is a model cut into units?",
                  {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"}));
  const std::string wrap = fsdp.find("fsdp_auto_wrap_policy")->text;
  if (wrap == "TRANSFORMER_BASED_WRAP") {
    const std::string classes = prompter.ask(
        "Names of the layers that become units, with commas between (empty: the model knows)", "",
        anything);
    if (!classes.empty()) {
      fsdp.set("fsdp_transformer_layer_cls_to_wrap", FileNode::string(classes));
    }
  } else if (wrap == "SIZE_BASED_WRAP") {
    fsdp.set("fsdp_min_num_params", FileNode::plain(prompter.ask("From how many parameters on",
                                                                 "100000000", whole_number)));
  }
  fsdp.set("fsdp_state_dict_type", chosen(prompter, "What do checkpoints hold?",
                                          {"SHARDED_STATE_DICT", "FULL_STATE_DICT"}));
  fsdp.set("fsdp_activation_checkpointing",
           truth(prompter.confirm("Compute activations again in backward instead of keeping them?",
                                  false)));
  fsdp.set("fsdp_cpu_ram_efficient_loading",
           truth(prompter.confirm("Read checkpoints on the first rank alone?", true)));
  document.set("fsdp_config", std::move(fsdp));
}

void ask_deepspeed_stage(Prompter& prompter, FileNode& deepspeed) {
  const size_t stage = prompter.choose(
      "What does ZeRO shard?",
      {"0  nothing", "1  optimizer state", "2  gradients too", "3  parameters too"}, 2);
  deepspeed.set("zero_stage", FileNode::plain(std::to_string(stage)));
  if (stage >= 2) {
    deepspeed.set("offload_optimizer_device",
                  chosen(prompter, "Where is optimizer state kept?", {"none", "cpu", "nvme"}));
    deepspeed.set("offload_param_device",
                  chosen(prompter, "Where are parameters kept?", {"none", "cpu", "nvme"}));
  }
  for (const std::string part : {"optimizer", "param"}) {
    const FileNode* device = deepspeed.find("offload_" + part + "_device");
    if (device == nullptr || device->text != "nvme") continue;
    deepspeed.set(
        "offload_" + part + "_nvme_path",
        FileNode::string(prompter.ask("NVMe folder of the " + part + "s", "/nvme", anything)));
  }
  deepspeed.set(
      "gradient_accumulation_steps",
      FileNode::plain(prompter.ask("Batches whose gradients make one update", "1", whole_number)));
  if (stage == 3) {
    deepspeed.set("zero3_save_16bit_model",
                  truth(prompter.confirm("Gather 16-bit weights when saving?", false)));
  }
  deepspeed.set(
      "zero3_init_flag",
      truth(stage == 3 && prompter.confirm("Shard parameters while the model is built?", true)));
}

void ask_deepspeed(Prompter& prompter, FileNode& document) {
  document.set("distributed_type", FileNode::string("DEEPSPEED"));
  FileNode deepspeed = FileNode::map();
  const std::string file =
      prompter.ask("DeepSpeed's own JSON file (empty: answer questions instead)", "", anything);
  if (file.empty()) {
    ask_deepspeed_stage(prompter, deepspeed);
  } else {
    deepspeed.set("deepspeed_config_file", FileNode::string(file));
    deepspeed.set("zero3_init_flag", truth(false));
  }
  document.set("deepspeed_config", std::move(deepspeed));
}

}  // namespace

void ask_sharding(Prompter& prompter, FileNode& document) {
  const size_t way = prompter.choose("How does a model meet its replicas?",
                                     {"every process holds all of it", "sharded, as FSDP calls it",
                                      "sharded, as DeepSpeed calls it"},
                                     0);
  if (way == 1) ask_fsdp(prompter, document);
  if (way == 2) ask_deepspeed(prompter, document);
}

}  // namespace accelerate::cli

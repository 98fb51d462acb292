#include "config/settings.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "accelerate/errors.h"
#include "config/schema.h"

namespace accelerate::config {
namespace {

constexpr const char* kParadigms[] = {"cpu",           "multi_gpu", "tpu",
                                      "use_deepspeed", "use_fsdp",  "use_megatron_lm"};

// What a file's distributed_type switches on.
const char* paradigm_of(std::string_view distributed_type) {
  if (distributed_type == "DEEPSPEED") return "use_deepspeed";
  if (distributed_type == "FSDP") return "use_fsdp";
  if (distributed_type == "MEGATRON_LM") return "use_megatron_lm";
  if (distributed_type == "XLA") return "tpu";
  if (distributed_type == "MULTI_CPU") return "cpu";
  if (distributed_type.starts_with("MULTI_")) return "multi_gpu";
  return nullptr;
}

void apply_file(const ConfigFile& file, Settings& settings) {
  for (const FileValue& value : file.values) {
    settings.set(*value.setting, value.text,
                 {ValueSource::kFile, file.place(value.line), value.older_name});
    if (value.setting->file_key.starts_with("deepspeed_config.")) {
      const size_t dot = value.setting->file_key.find('.');
      settings.deepspeed_fields.emplace_back(value.setting->file_key.substr(dot + 1));
    }
  }
}

void apply_variables(const SettingsInput& input, Settings& settings) {
  if (!input.variable) return;
  for (const Setting* setting : all_settings()) {
    const std::string name = variable_of(*setting);
    if (name.empty()) continue;
    const std::optional<std::string> text = input.variable(name);
    if (!text || text->empty()) continue;
    const Source source{ValueSource::kVariable, name};
    settings.set(*setting, checked_value(*setting, *text, source), source);
  }
}

void apply_flags(const SettingsInput& input, Settings& settings) {
  for (const FlagValue& value : input.flags) {
    const Source source{ValueSource::kFlag, value.flag};
    settings.set(*value.setting, checked_value(*value.setting, value.text, source), source);
  }
}

bool is_decided_outside_the_file(const Settings& settings, const char* name) {
  const ValueSource kind = settings[name].source.kind;
  return kind == ValueSource::kFlag || kind == ValueSource::kVariable;
}

// The file's way of distributing counts only where no flag or variable chose one, and switched none
// of it off. Whoever chose the CPU keeps the shards that the file asks for.
void apply_distributed_type(const ConfigFile& file, Settings& settings) {
  const SettingValue type = settings["distributed_type"];
  const char* paradigm = paradigm_of(type.text.value_or("NO"));
  const std::string_view way = paradigm != nullptr ? paradigm : "";
  const bool is_sharded = way == "use_fsdp" || way == "use_deepspeed";
  const bool is_chosen = std::any_of(std::begin(kParadigms), std::end(kParadigms), [&](auto name) {
    if (is_sharded && name == std::string_view("cpu")) return false;
    return settings.is_on(name) && is_decided_outside_the_file(settings, name);
  });
  if (is_chosen) return;
  const bool is_said = paradigm != nullptr && settings.is_on(paradigm);  // use_cpu beside MULTI_CPU
  if (paradigm != nullptr && !is_said && !is_decided_outside_the_file(settings, paradigm)) {
    settings.set(*find_setting(paradigm), "true", type.source);
  }
  const FileNode* mesh = file.document.find("parallelism_config");
  if (mesh != nullptr && !mesh->entries.empty() && !settings["use_parallelism_config"].is_given()) {
    settings.set(*find_setting("use_parallelism_config"), "true",
                 {ValueSource::kFile, file.place(mesh->line)});
  }
}

void refuse_missing_processes(const ConfigFile& file, const Settings& settings) {
  if (!file.asks_for_processes || settings["num_processes"].text) return;
  throw ConfigError({.what = "the file leaves num_processes to the command line",
                     .where = file.place(*file.asks_for_processes),
                     .hint = "accelerate launch --num_processes 2 ./train"});
}

void detect(const SettingsInput& input, Settings& settings) {
  if (settings["num_processes"].text) return;
  // Every machine is taken to be like this one.
  const int machines = settings.integer("num_machines").value_or(1);
  const auto decide = [&](int processes, std::string reason) {
    if (machines > 1) reason += ", on each of " + std::to_string(machines) + " machines";
    settings.set(*find_setting("num_processes"), std::to_string(processes * machines),
                 {ValueSource::kDetected, std::move(reason)});
  };
  const std::string ids = settings.text("gpu_ids");
  if (settings.is_on("cpu")) return decide(1, "one on the CPU");
  if (!ids.empty() && ids != "all") {
    return decide(static_cast<int>(list_parts(ids).size()), "one for each GPU of gpu_ids");
  }
  if (input.gpus == 0) return decide(1, "no GPU is visible");
  decide(input.gpus, "one for each visible GPU");
}

}  // namespace

Settings::Settings() : values_(all_settings().size()) {
  for (size_t i = 0; i < values_.size(); ++i) {
    if (const auto& preset = all_settings()[i]->preset) values_[i].text = std::string(*preset);
  }
}

const SettingValue& Settings::operator[](std::string_view name) const {
  const Setting* setting = find_setting(name);
  if (setting == nullptr) throw std::logic_error("no setting is called " + std::string(name));
  return of(*setting);
}

const SettingValue& Settings::of(const Setting& setting) const {
  return values_[index_of(setting)];
}

void Settings::set(const Setting& setting, std::string text, Source source) {
  values_[index_of(setting)] = {.text = std::move(text), .source = std::move(source)};
}

bool Settings::is_on(std::string_view name) const {
  return truth_of((*this)[name].text.value_or("false")).value_or(false);
}

std::optional<int> Settings::integer(std::string_view name) const {
  const auto number = whole_number(text(name));
  return number && std::in_range<int>(*number) ? std::optional(static_cast<int>(*number))
                                               : std::nullopt;
}

std::optional<double> Settings::number(std::string_view name) const {
  return decimal_number(text(name));
}

std::string Settings::text(std::string_view name) const { return (*this)[name].text.value_or(""); }

Settings resolve_settings(const SettingsInput& input) {
  Settings settings;
  if (input.file != nullptr) apply_file(*input.file, settings);
  apply_variables(input, settings);
  apply_flags(input, settings);
  if (input.file != nullptr) {
    apply_distributed_type(*input.file, settings);
    refuse_missing_processes(*input.file, settings);
    if (settings["mixed_precision"].source.kind == ValueSource::kFile) {
      settings.deepspeed_fields.emplace_back("mixed_precision");
    }
  }
  detect(input, settings);
  check_together(settings);
  return settings;
}

}  // namespace accelerate::config

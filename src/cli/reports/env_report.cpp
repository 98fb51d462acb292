#include "cli/reports/env_report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/reports/explain_table.h"
#include "config/schema.h"
#include "config/value.h"

namespace accelerate::cli {
namespace {

using config::Kind;
using config::Setting;
using config::SettingValue;
using config::ValueSource;
using nlohmann::ordered_json;

std::string gibibytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB",
                static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0));
  return text;
}

// What is there, and what is wrong with it.
std::vector<std::string> libtorch_texts(const LibtorchFacts& torch) {
  std::vector<std::string> texts;
  if (!torch.folder.empty()) {
    texts.push_back(torch.version + (torch.has_cuda ? " with CUDA" : " for CPU") + " at " +
                    torch.folder);
  }
  if (!torch.problem.what.empty()) {
    texts.push_back(torch.problem.what + "; try " + torch.problem.hint);
  }
  return texts;
}

std::string processor_text(const ProcessorFacts& processor) {
  std::string cores = std::to_string(processor.logical_cores) + " logical cores";
  if (processor.usable_cores != processor.logical_cores) {
    cores = std::to_string(processor.usable_cores) + " of " + cores;
  }
  return (processor.model.empty() ? "unknown model" : processor.model) + ", " + cores;
}

std::string python_text(const PythonFacts& python) {
  if (python.path.empty()) return "none";
  if (python.version.empty()) return "at " + python.path + ", which did not answer";
  return python.version + " at " + python.path + ", " +
         (python.torch.empty() ? "no torch" : "torch " + python.torch);
}

std::vector<std::string> backend_texts(const std::vector<BackendFacts>& backends) {
  std::vector<std::string> texts;
  for (const BackendFacts& backend : backends) {
    texts.push_back(backend.name + (backend.version.empty() ? "" : " " + backend.version) +
                    (backend.path.empty() ? "" : " at " + backend.path));
  }
  return texts;
}

std::vector<std::string> gpu_texts(const std::vector<GpuFacts>& gpus) {
  std::vector<std::string> texts;
  for (const GpuFacts& gpu : gpus) {
    texts.push_back((gpu.model.empty() ? "unknown model" : gpu.model) +
                    (gpu.bus.empty() ? "" : " at " + gpu.bus));
  }
  return texts;
}

std::string configuration_text(const ConfigurationFacts& configuration) {
  if (!configuration.problem.empty()) {
    return "cannot be used: " + configuration.problem +
           (configuration.problem_at.empty() ? "" : " at " + configuration.problem_at);
  }
  return configuration.file.empty() ? "none (" + configuration.if_written + ")"
                                    : configuration.file;
}

// Lines of a table; "none" where there are no values.
std::string rows(const char* name, const std::vector<std::string>& values) {
  std::string text;
  const auto add = [&](const char* head, const std::string& value) {
    char column[32];
    std::snprintf(column, sizeof column, "%-13s ", head);
    text += column + value + "\n";
  };
  if (values.empty()) add(name, "none");
  for (const std::string& value : values) add(text.empty() ? name : "", value);
  return text;
}

ordered_json text_or_null(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

ordered_json value_json(const Setting& setting, const std::string& text) {
  if (setting.is_secret) return nullptr;
  if (setting.kind == Kind::kSwitch || setting.kind == Kind::kBool) {
    if (const auto truth = config::truth_of(text)) return *truth;
  }
  if (setting.kind == Kind::kInt) {
    if (const auto number = config::whole_number(text)) return *number;
  }
  if (setting.kind == Kind::kFloat) {
    if (const auto number = config::decimal_number(text)) return *number;
  }
  return text;
}

const char* name_of(ValueSource kind) {
  switch (kind) {
    case ValueSource::kFlag:
      return "flag";
    case ValueSource::kVariable:
      return "variable";
    case ValueSource::kFile:
      return "file";
    case ValueSource::kDetected:
      return "detected";
    case ValueSource::kPreset:
      return "default";
  }
  return "default";
}

ordered_json settings_json(const std::optional<config::Settings>& settings) {
  ordered_json document = ordered_json::object();
  if (!settings) return document;
  for (const Setting* setting : config::all_settings()) {
    const SettingValue& value = settings->of(*setting);
    if (!value.text || value.source.kind == ValueSource::kPreset) continue;
    document[std::string(setting->name)] = {{"value", value_json(*setting, *value.text)},
                                            {"source", name_of(value.source.kind)},
                                            {"where", value.source.where}};
  }
  return document;
}

ordered_json variables_json(const std::vector<std::string>& variables) {
  ordered_json document = ordered_json::object();
  for (const std::string& variable : variables) {
    const size_t equals = variable.find('=');
    document[variable.substr(0, equals)] = variable.substr(equals + 1);
  }
  return document;
}

ordered_json libtorch_json(const LibtorchFacts& torch) {
  if (torch.folder.empty()) return nullptr;
  return {{"version", text_or_null(torch.version)},
          {"has_cuda", torch.has_cuda},
          {"folder", torch.folder}};
}

ordered_json python_json(const PythonFacts& python) {
  if (python.path.empty()) return nullptr;
  return {{"path", python.path},
          {"version", text_or_null(python.version)},
          {"torch_version", text_or_null(python.torch)}};
}

ordered_json problem_json(const ConfigurationFacts& configuration) {
  if (configuration.problem.empty()) return nullptr;
  return {{"message", configuration.problem}, {"where", text_or_null(configuration.problem_at)}};
}

}  // namespace

std::string environment_text(const EnvironmentFacts& facts) {
  const PlatformFacts& platform = facts.platform;
  std::string text = rows("accelerate", {facts.version}) +
                     rows("built with", {"libtorch " + facts.built_for + ", " + facts.compiler}) +
                     rows("libtorch", libtorch_texts(facts.libtorch)) +
                     rows("backends", backend_texts(facts.libtorch.backends)) +
                     rows("platform", {platform.system + " " + platform.release + " " +
                                       platform.machine + ", glibc " + platform.glibc}) +
                     rows("processor", {processor_text(facts.processor)}) +
                     rows("memory", {gibibytes(facts.memory)}) +
                     rows("GPUs", gpu_texts(facts.gpus)) +
                     rows("GPU driver", {facts.gpu_driver.empty() ? "none" : facts.gpu_driver}) +
                     rows("Python", {python_text(facts.python)}) +
                     rows("configuration", {configuration_text(facts.configuration)});
  if (const auto& settings = facts.configuration.settings) {
    text += rows("settings", given_settings(*settings));
  }
  return text + rows("variables", facts.variables);
}

std::string environment_json(const EnvironmentFacts& facts) {
  ordered_json backends = ordered_json::array();
  for (const BackendFacts& backend : facts.libtorch.backends) {
    backends.push_back({{"name", backend.name},
                        {"version", text_or_null(backend.version)},
                        {"path", text_or_null(backend.path)}});
  }
  ordered_json gpus = ordered_json::array();
  for (const GpuFacts& gpu : facts.gpus) {
    gpus.push_back({{"model", text_or_null(gpu.model)}, {"bus", text_or_null(gpu.bus)}});
  }
  const ordered_json document = {
      {"accelerate_version", facts.version},
      {"build", {{"libtorch_version", facts.built_for}, {"compiler", facts.compiler}}},
      {"libtorch", libtorch_json(facts.libtorch)},
      {"libtorch_problem", text_or_null(facts.libtorch.problem.what)},
      {"backends", backends},
      {"platform",
       {{"system", facts.platform.system},
        {"release", facts.platform.release},
        {"machine", facts.platform.machine},
        {"glibc_version", facts.platform.glibc}}},
      {"processor",
       {{"model", text_or_null(facts.processor.model)},
        {"logical_cores", facts.processor.logical_cores},
        {"usable_cores", facts.processor.usable_cores}}},
      {"memory_bytes", facts.memory},
      {"gpus", gpus},
      {"gpu_driver_version", text_or_null(facts.gpu_driver)},
      {"python", python_json(facts.python)},
      {"config_file", text_or_null(facts.configuration.file)},
      {"config_problem", problem_json(facts.configuration)},
      {"settings", settings_json(facts.configuration.settings)},
      {"variables", variables_json(facts.variables)}};
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace accelerate::cli

#include "cli/launch_allocation.h"

#include "config/schema.h"

namespace accelerate::cli {
namespace {

using config::Setting;
using config::Settings;
using config::SettingValue;
using config::SourceKind;
using launch::Allocation;

constexpr const char* kScheduler = "the allocation of SLURM";

// Whether the user wants the value that `name` has. Files hold presets that nobody chose.
bool is_wish(const Settings& settings, const char* name) {
  const SettingValue& value = settings[name];
  if (value.source.kind != SourceKind::kFile) return value.is_given();
  const Setting& setting = *config::find_setting(name);
  return !setting.file_preset || value.text != *setting.file_preset;
}

bool is_of_file(const Settings& settings, const char* name) {
  return settings[name].source.kind == SourceKind::kFile;
}

// "num_machines 1 (c.yaml:3)"
std::string cited(const Settings& settings, const char* name) {
  return std::string(name) + " " + settings.text(name) + " (" + settings[name].source.where + ")";
}

class Taker {
 public:
  Taker(const Allocation& allocation, Settings& settings)
      : allocation_(allocation), settings_(settings) {}

  std::string take_one_machine() {
    if (!settings_["num_processes"].is_given() && allocation_.num_processes > 0) {
      decide("num_processes", std::to_string(allocation_.num_processes));
    }
    return "";
  }

  std::string take_all() {
    const std::string sentence = overruled();
    take_processes();
    decide("num_machines", std::to_string(allocation_.num_machines));
    decide("launcher", allocation_.one_task_a_machine ? "local" : "slurm");
    fill_in("machine_rank", std::to_string(allocation_.machine_rank));
    fill_in("main_process_ip", allocation_.main_address);
    fill_in("main_process_port", std::to_string(allocation_.main_port));
    fill_in("run_id", allocation_.run_id);
    return sentence;
  }

 private:
  void decide(const char* name, std::string text) {
    settings_.set(*config::find_setting(name), std::move(text),
                  {SourceKind::kDetected, kScheduler});
  }

  void fill_in(const char* name, std::string text) {
    if (!is_wish(settings_, name)) decide(name, std::move(text));
  }

  // A file that is not for several machines counts the workers of one.
  bool has_processes_of_one_machine() const {
    return is_of_file(settings_, "num_processes") && allocation_.num_machines > 1;
  }

  void take_processes() {
    if (settings_["num_processes"].is_given() && !has_processes_of_one_machine()) return;
    if (allocation_.num_processes > 0) {
      decide("num_processes", std::to_string(allocation_.num_processes));
      return;
    }
    const int each = settings_.integer("num_processes").value_or(1);
    decide("num_processes", std::to_string(each * allocation_.num_machines));
  }

  std::string overruled() const {
    if (allocation_.num_machines < 2) return "";
    const bool counts_each = has_processes_of_one_machine() && allocation_.num_processes == 0;
    std::string unused;
    const auto add = [&](const char* name) {
      unused += (unused.empty() ? "" : " and ") + cited(settings_, name);
    };
    if (is_of_file(settings_, "num_machines")) add("num_machines");
    if (has_processes_of_one_machine() && !counts_each) add("num_processes");
    if (unused.empty() && !counts_each) return "";
    std::string text =
        "the allocation has " + std::to_string(allocation_.num_machines) + " machines";
    if (!unused.empty()) text += "; not used: " + unused;
    if (counts_each) text += "; for each machine: " + cited(settings_, "num_processes");
    return text;
  }

  const Allocation& allocation_;
  Settings& settings_;
};

}  // namespace

bool is_left_to_allocation(const Settings& settings) { return !is_wish(settings, "num_machines"); }

std::string take_allocation(const Allocation& allocation, Settings& settings) {
  if (allocation.num_machines == 0 || !is_left_to_allocation(settings)) return "";
  const bool is_asked_for_slurm = settings.text("launcher") == "slurm";
  Taker taker(allocation, settings);
  const bool stays = allocation.num_machines == 1 && !is_asked_for_slurm;
  const std::string sentence = stays ? taker.take_one_machine() : taker.take_all();
  config::check_together(settings);
  return sentence;
}

}  // namespace accelerate::cli

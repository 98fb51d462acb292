#include "cli/commands/launch_allocation.h"

#include "accelerate/errors.h"
#include "config/schema.h"

namespace accelerate::cli {
namespace {

using config::Setting;
using config::Settings;
using config::SettingValue;
using config::ValueSource;
using launch::Allocation;

constexpr const char* kScheduler = "the allocation of SLURM";

// Whether the user wants the value that `name` has. Files hold presets that nobody chose.
bool is_wish(const Settings& settings, const char* name) {
  const SettingValue& value = settings[name];
  if (value.source.kind != ValueSource::kFile) return value.is_given();
  const Setting& setting = *config::find_setting(name);
  return !setting.file_preset || value.text != *setting.file_preset;
}

bool is_of_file(const Settings& settings, const char* name) {
  return settings[name].source.kind == ValueSource::kFile;
}

// "num_machines 1 (c.yaml:3)"
std::string cited(const Settings& settings, const char* name) {
  return std::string(name) + " " + settings.text(name) + " (" + settings[name].source.where + ")";
}

class Taker {
 public:
  Taker(const Allocation& allocation, Settings& settings)
      : allocation_(allocation),
        settings_(settings),
        names_machines_(is_wish(settings, "num_machines")) {}

  std::string take_one_machine() {
    if (!settings_["num_processes"].is_given() && allocation_.num_processes > 0) {
      decide("num_processes", std::to_string(allocation_.num_processes));
    }
    return "";
  }

  std::string take_all() {
    const std::string sentence = overruled();
    take_processes();
    if (!names_machines_) decide("num_machines", std::to_string(allocation_.num_machines));
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
                  {ValueSource::kDetected, kScheduler});
  }

  void fill_in(const char* name, std::string text) {
    if (!is_wish(settings_, name)) decide(name, std::move(text));
  }

  // A file that is not for several machines counts the workers of one.
  bool has_processes_of_one_machine() const {
    return is_of_file(settings_, "num_processes") && allocation_.num_machines > 1 &&
           !names_machines_;
  }

  void take_processes() {
    if (settings_["num_processes"].is_given() && !has_processes_of_one_machine()) return;
    if (allocation_.num_processes > 0) {
      decide("num_processes", std::to_string(allocation_.num_processes));
      return;
    }
    if (names_machines_) return;  // what was detected is for all of them
    const int each = settings_.integer("num_processes").value_or(1);
    decide("num_processes", std::to_string(each * allocation_.num_machines));
  }

  std::string overruled() const {
    if (allocation_.num_machines < 2 || names_machines_) return "";
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
  bool names_machines_;  // somebody said how many take part: as many as the allocation has
};

// Whether this run takes part in a job of machines that the user starts one by one. Refuses a
// number of machines that this allocation does not have: nobody would start the others.
bool is_started_by_hand(const Allocation& allocation, const Settings& settings) {
  if (!is_wish(settings, "num_machines")) return false;
  // Each machine may have an allocation of its own.
  if (allocation.num_machines < 2) return true;
  if (settings.integer("num_machines") == allocation.num_machines) return false;
  throw ConfigError({.what = "num_machines is " + settings.text("num_machines") +
                             ", but the allocation of SLURM has " +
                             std::to_string(allocation.num_machines) + " machines",
                     .where = config::place_of(settings["num_machines"].source),
                     .hint = "leave it out: the machines are found. Or name --machine_rank and "
                             "start a launcher on each by hand"});
}

}  // namespace

bool is_left_to_allocation(const Settings& settings) {
  if (!is_wish(settings, "num_machines")) return true;
  return settings.integer("num_machines") != 1 && !is_wish(settings, "machine_rank");
}

std::string take_allocation(const Allocation& allocation, Settings& settings) {
  if (allocation.num_machines == 0 || !is_left_to_allocation(settings)) return "";
  if (is_started_by_hand(allocation, settings)) return "";
  const bool is_asked_for_slurm = settings.text("launcher") == "slurm";
  Taker taker(allocation, settings);
  const bool stays = allocation.num_machines == 1 && !is_asked_for_slurm;
  const std::string sentence = stays ? taker.take_one_machine() : taker.take_all();
  config::check_together(settings);
  return sentence;
}

}  // namespace accelerate::cli

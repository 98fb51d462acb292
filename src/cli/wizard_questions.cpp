#include "cli/wizard_questions.h"

#include <algorithm>

#include "accelerate/errors.h"
#include "cli/wizard_sharding.h"
#include "config/config_file.h"
#include "config/schema.h"
#include "config/value.h"

namespace accelerate::cli {
namespace {

using config::FileNode;

enum class MachineKind { kOneProcess, kManyCpu, kManyGpu };

std::string number_text(int number) { return std::to_string(number); }

// Complains as the schema does, without naming a place.
std::function<std::string(const std::string&)> as_setting(const char* name) {
  return [setting = config::find_setting(name)](const std::string& answer) -> std::string {
    try {
      config::checked_value(*setting, answer, {});
      return "";
    } catch (const ConfigError& error) {
      return error.message();
    }
  };
}

std::string something(const std::string& answer) {
  return answer.empty() ? "An answer is needed." : "";
}

class Wizard {
 public:
  Wizard(Prompter& prompter, const MachineOffer& machine)
      : prompter_(prompter), machine_(machine) {}

  FileNode run() {
    document_ = FileNode::map();
    document_.set("compute_environment", FileNode::string("LOCAL_MACHINE"));
    const MachineKind kind = ask_machine_kind();
    if (kind != MachineKind::kOneProcess) ask_machines();
    if (kind == MachineKind::kManyCpu) ask_mpirun();
    if (kind == MachineKind::kManyGpu) ask_sharding(prompter_, document_);
    if (kind != MachineKind::kOneProcess) ask_processes(kind);
    if (kind != MachineKind::kOneProcess) ask_checks();
    if (!is_cpu_) ask_gpus();
    ask_precision();
    return config::complete_document(config::interpret_config(document_, "answers"));
  }

 private:
  MachineKind ask_machine_kind() {
    const size_t preset = machine_.gpus > 1 ? 2 : 0;
    const auto kind = static_cast<MachineKind>(prompter_.choose(
        "What do you train on?",
        {"one process (CPU or one GPU)", "several processes on CPUs", "several GPUs"}, preset));
    if (kind == MachineKind::kOneProcess) {
      is_cpu_ = machine_.gpus == 0 ||
                prompter_.confirm("Keep to the CPU, although there is a GPU?", false);
    }
    if (kind == MachineKind::kManyCpu) is_cpu_ = true;
    const char* types[] = {"NO", "MULTI_CPU", "MULTI_GPU"};
    document_.set("distributed_type", FileNode::string(types[static_cast<size_t>(kind)]));
    document_.set("use_cpu", FileNode::plain(is_cpu_ ? "true" : "false"));
    document_.set("num_processes", FileNode::plain("1"));
    return kind;
  }

  void ask_machines() {
    machines_ =
        std::stoi(prompter_.ask("How many machines take part", "1", as_setting("num_machines")));
    document_.set("num_machines", FileNode::plain(number_text(machines_)));
    document_.set("same_network", FileNode::plain("true"));
    if (machines_ == 1) return;
    const auto rank =
        prompter_.ask("Which of them is this one, from 0", "0", [this](const std::string& answer) {
          const std::string problem = as_setting("machine_rank")(answer);
          if (!problem.empty()) return problem;
          return std::stoi(answer) < machines_
                     ? std::string()
                     : "With " + number_text(machines_) + " machines the last one is " +
                           number_text(machines_ - 1) + ".";
        });
    document_.set("machine_rank", FileNode::plain(rank));
    document_.set("main_process_ip", FileNode::string(prompter_.ask(
                                         "Address of machine 0, where all meet", "", something)));
    document_.set(
        "main_process_port",
        FileNode::plain(prompter_.ask("Port there", "29500", as_setting("main_process_port"))));
    const bool same_network = prompter_.confirm("Are all machines on one local network?", true);
    document_.set("same_network", FileNode::plain(same_network ? "true" : "false"));
  }

  void ask_mpirun() {
    if (!prompter_.confirm("Shall mpirun start the processes?", false)) return;
    FileNode mpirun = FileNode::map();
    mpirun.set("mpirun_hostfile",
               FileNode::string(prompter_.ask("Host file of mpirun", "hostfile", something)));
    document_.set("mpirun_config", std::move(mpirun));
  }

  void ask_processes(MachineKind kind) {
    const int here = kind == MachineKind::kManyGpu ? std::max(2, machine_.gpus)
                                                   : std::max(2, machine_.cores / 2);
    const auto processes = prompter_.ask(
        machines_ == 1 ? "How many processes" : "How many processes, on all machines together",
        number_text(here * machines_), [this](const std::string& answer) {
          const std::string problem = as_setting("num_processes")(answer);
          if (!problem.empty()) return problem;
          return std::stoi(answer) % machines_ == 0
                     ? std::string()
                     : "It must be a multiple of " + number_text(machines_) + ", the machines.";
        });
    document_.set("num_processes", FileNode::plain(processes));
  }

  void ask_checks() {
    const bool debug = prompter_.confirm(
        "Compare every collective over the ranks before it runs? (slower, finds ranks that part)",
        false);
    document_.set("debug", FileNode::plain(debug ? "true" : "false"));
  }

  void ask_gpus() {
    if (machine_.gpus < 2) return;
    const std::string ids = prompter_.ask(
        "Which GPUs of this machine, as in 0,1", "all", [](const std::string& answer) {
          const bool is_list =
              !answer.empty() && answer.find_first_not_of("0123456789,") == std::string::npos;
          return answer == "all" || is_list ? "" : "Numbers with commas between, or all.";
        });
    document_.set("gpu_ids", FileNode::string(ids));
    const bool affinity = prompter_.confirm("Keep each process on the cores near its GPU?", false);
    document_.set("enable_cpu_affinity", FileNode::plain(affinity ? "true" : "false"));
  }

  void ask_precision() {
    const FileNode* deepspeed = document_.find("deepspeed_config");
    if (deepspeed != nullptr && deepspeed->find("deepspeed_config_file") != nullptr) {
      return;  // that file says it
    }
    const std::vector<std::string> precisions = {"no", "fp16", "bf16"};
    const size_t chosen = prompter_.choose("Mixed precision?", precisions, 0);
    document_.set("mixed_precision", FileNode::string(precisions[chosen]));
  }

  Prompter& prompter_;
  MachineOffer machine_;
  FileNode document_;
  bool is_cpu_ = false;
  int machines_ = 1;
};

}  // namespace

FileNode ask_configuration(Prompter& prompter, const MachineOffer& machine) {
  return Wizard(prompter, machine).run();
}

}  // namespace accelerate::cli

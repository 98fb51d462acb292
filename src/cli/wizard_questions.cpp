#include "cli/wizard_questions.h"

#include <algorithm>

#include "cli/wizard_answers.h"
#include "cli/wizard_sharding.h"
#include "config/config_file.h"
#include "config/settings.h"
#include "config/value.h"

namespace accelerate::cli {
namespace {

using config::FileNode;

enum class MachineKind { kOneProcess, kManyCpu, kManyGpu };

std::string number_text(int number) { return std::to_string(number); }

// Of an answer that its setting took.
int number_of(const std::string& answer) {
  return static_cast<int>(config::whole_number(answer).value_or(0));
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
    return checked_document();
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
    if (kind == MachineKind::kManyGpu && machine_.gpus == 0) {
      prompter_.tell(
          "No NVIDIA GPU is found on this machine: here the processes would run on the CPU.");
    }
    const char* types[] = {"NO", "MULTI_CPU", "MULTI_GPU"};
    document_.set("distributed_type", FileNode::string(types[static_cast<size_t>(kind)]));
    document_.set("use_cpu", FileNode::plain(is_cpu_ ? "true" : "false"));
    document_.set("num_processes", FileNode::plain("1"));
    return kind;
  }

  void ask_machines() {
    machines_ = number_of(ask_value(prompter_, "How many machines take part", "num_machines", "1"));
    document_.set("num_machines", FileNode::plain(number_text(machines_)));
    document_.set("same_network", FileNode::plain("true"));
    if (machines_ == 1) return;
    const auto rank =
        prompter_.ask("Which of them is this one, from 0", "0", [this](const std::string& answer) {
          const std::string problem = as_setting("machine_rank")(answer);
          if (!problem.empty()) return problem;
          return number_of(answer) < machines_
                     ? std::string()
                     : "With " + number_text(machines_) + " machines the last one is " +
                           number_text(machines_ - 1) + ".";
        });
    document_.set("machine_rank", FileNode::plain(number_text(number_of(rank))));
    document_.set("main_process_ip", FileNode::string(prompter_.ask(
                                         "Address of machine 0, where all meet", "", something)));
    document_.set("main_process_port", FileNode::plain(ask_value(prompter_, "Port there",
                                                                 "main_process_port", "29500")));
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
          return number_of(answer) % machines_ == 0
                     ? std::string()
                     : "It must be a multiple of " + number_text(machines_) + ", the machines.";
        });
    document_.set("num_processes", FileNode::plain(number_text(number_of(processes))));
  }

  void ask_checks() {
    document_.set("debug", confirm_value(prompter_,
                                         "Compare every collective over the ranks before it runs? "
                                         "(slower, finds ranks that part)",
                                         "debug"));
  }

  void ask_gpus() {
    if (machine_.gpus < 2) return;
    const std::string ids = prompter_.ask(
        "Which GPUs of this machine, as in 0,1", "all", [this](const std::string& answer) {
          if (answer == "all") return std::string();
          if (!config::is_gpu_list(answer)) {
            return std::string("Numbers with commas between, or all.");
          }
          const bool is_one_of_many = config::list_parts(answer).size() < 2 && machines_ == 1 &&
                                      document_.find("distributed_type")->text == "MULTI_GPU";
          return std::string(is_one_of_many ? "At least two, for several GPUs." : "");
        });
    document_.set("gpu_ids", FileNode::string(ids));
    document_.set("enable_cpu_affinity",
                  confirm_value(prompter_, "Keep each process on the cores near its GPU?",
                                "enable_cpu_affinity"));
  }

  void ask_precision() {
    const FileNode* deepspeed = document_.find("deepspeed_config");
    if (deepspeed != nullptr && deepspeed->find("deepspeed_config_file") != nullptr) {
      return;  // that file says it
    }
    document_.set("mixed_precision",
                  choose_value(prompter_, "Mixed precision?", "mixed_precision"));
  }

  // What was answered, read as a file that says it would be: no answer passes that a run refuses.
  FileNode checked_document() const {
    const char* answers = "the answers";
    const config::ConfigFile file = config::interpret_config(
        config::parse_config_text(config::yaml_text(document_), answers), answers);
    config::resolve_settings({.file = &file, .gpus = machine_.gpus});
    return config::complete_document(file);
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

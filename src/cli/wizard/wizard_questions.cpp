#include "cli/wizard/wizard_questions.h"

#include <algorithm>

#include "accelerate/errors.h"
#include "base/printable_text.h"
#include "cli/wizard/wizard_answers.h"
#include "cli/wizard/wizard_recall.h"
#include "cli/wizard/wizard_sharding.h"
#include "config/config_file.h"
#include "config/settings.h"
#include "config/value.h"
#include "launch/plan/hostfile.h"

namespace accelerate::cli {
namespace {

using config::FileNode;

enum class MachineKind { kOneProcess, kManyCpu, kManyGpu };

std::string number_text(int number) { return std::to_string(number); }

// Of an answer that its setting took.
int number_of(const std::string& answer) {
  return static_cast<int>(config::whole_number(answer).value_or(0));
}

// A name or an address; what else it could be is caught here instead of at the first run.
std::string complaint_about_host(const std::string& answer) {
  if (answer.empty()) return "An answer is needed.";
  constexpr const char* kOfNames =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  constexpr const char* kOfAddresses = "0123456789abcdefABCDEF:.%";
  const auto is_made_of = [&](const char* letters) {
    return answer.find_first_not_of(letters) == std::string::npos;
  };
  const auto colons = std::count(answer.begin(), answer.end(), ':');
  const size_t colon = answer.find(':');
  const bool has_port =
      colons == 1 && answer.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  if (has_port) return "The name or address alone: the port is asked for next.";
  if (colons > 1 ? is_made_of(kOfAddresses) : is_made_of(kOfNames)) {
    const bool is_edge = answer.front() == '-' || answer.front() == '.' || answer.back() == '-';
    if (!is_edge) return "";
  }
  return "'" + printable_text(answer) + "' is neither the name of a machine nor an address.";
}

std::string complaint_about_hostfile(const std::string& answer) {
  if (answer.empty()) return "An answer is needed.";
  try {
    launch::read_hostfile(answer);
    return "";
  } catch (const Error& error) {
    return error.message();
  }
}

class Wizard {
 public:
  Wizard(Prompter& prompter, const MachineOffer& machine)
      : prompter_(prompter), machine_(machine), asking_{prompter_, machine_.present} {}

  FileNode run() {
    document_ = FileNode::map();
    document_.set("compute_environment", FileNode::string("LOCAL_MACHINE"));
    const MachineKind kind = ask_machine_kind();
    if (kind != MachineKind::kOneProcess) ask_machines();
    if (kind == MachineKind::kManyCpu) ask_mpirun();
    if (kind != MachineKind::kOneProcess) {
      ask_sharding(asking_, document_, machine_.capabilities);
    }
    if (kind != MachineKind::kOneProcess) ask_processes(kind);
    if (kind != MachineKind::kOneProcess) ask_checks();
    if (!is_cpu_) ask_gpus();
    ask_precision();
    return checked_document();
  }

 private:
  MachineKind ask_machine_kind() {
    const size_t preset = proposed_kind();
    const auto kind = static_cast<MachineKind>(prompter_.choose(
        "What do you train on?",
        {"one process (CPU or one GPU)", "several processes on CPUs", "several GPUs"}, preset));
    if (kind == MachineKind::kOneProcess) {
      is_cpu_ = machine_.gpus == 0 ||
                prompter_.confirm("Train on the CPU, although there is a GPU?", is_present("cpu"));
    }
    if (kind == MachineKind::kManyCpu) is_cpu_ = true;
    if (kind == MachineKind::kManyGpu && machine_.gpus == 0) {
      prompter_.tell(
          "No NVIDIA GPU was found on this machine: accelerate launch will refuse to start here.");
    }
    const char* types[] = {"NO", "MULTI_CPU", "MULTI_GPU"};
    document_.set("distributed_type", FileNode::string(types[static_cast<size_t>(kind)]));
    document_.set("use_cpu", FileNode::plain(is_cpu_ ? "true" : "false"));
    document_.set("num_processes", FileNode::plain("1"));
    return kind;
  }

  void ask_machines() {
    machines_ = number_of(ask_value(asking_, "How many machines", "num_machines", "1"));
    document_.set("num_machines", FileNode::plain(number_text(machines_)));
    document_.set("same_network", FileNode::plain("true"));
    if (machines_ == 1) return;
    const auto rank =
        prompter_.ask("Rank of this machine, from 0", proposal_of(asking_, "machine_rank", "0"),
                      [this](const std::string& answer) {
                        const std::string problem = as_setting("machine_rank")(answer);
                        if (!problem.empty()) return problem;
                        return number_of(answer) < machines_ ? std::string()
                                                             : "With " + number_text(machines_) +
                                                                   " machines the last one is " +
                                                                   number_text(machines_ - 1) + ".";
                      });
    document_.set("machine_rank", FileNode::plain(number_text(number_of(rank))));
    document_.set("main_process_ip",
                  FileNode::string(prompter_.ask(
                      "Address of machine 0, which all others connect to",
                      proposal_of(asking_, "main_process_ip", ""), complaint_about_host)));
    document_.set("main_process_port",
                  FileNode::plain(ask_value(asking_, "Port there", "main_process_port", "29500")));
    document_.set("same_network", confirm_value(asking_, "Are all machines on one local network?",
                                                "same_network", true));
  }

  void ask_mpirun() {
    const bool was_mpirun = machine_.present.count("mpirun_hostfile") > 0;
    if (!prompter_.confirm("Start the processes with mpirun?", was_mpirun)) return;
    FileNode mpirun = FileNode::map();
    mpirun.set("mpirun_hostfile",
               FileNode::string(prompter_.ask("Host file of mpirun",
                                              proposal_of(asking_, "mpirun_hostfile", "hostfile"),
                                              complaint_about_hostfile)));
    document_.set("mpirun_config", std::move(mpirun));
  }

  void ask_processes(MachineKind kind) {
    const int here = kind == MachineKind::kManyGpu ? std::max(2, machine_.gpus)
                                                   : std::max(2, machine_.cores / 2);
    const auto processes = prompter_.ask(
        machines_ == 1 ? "How many processes" : "How many processes, on all machines together",
        proposal_of(asking_, "num_processes", number_text(here * machines_)),
        [this](const std::string& answer) {
          const std::string problem = as_setting("num_processes")(answer);
          if (!problem.empty()) return problem;
          return number_of(answer) % machines_ == 0
                     ? std::string()
                     : "It must be a multiple of " + number_text(machines_) +
                           ", the number of machines.";
        });
    document_.set("num_processes", FileNode::plain(number_text(number_of(processes))));
  }

  void ask_checks() {
    document_.set("debug", confirm_value(asking_,
                                         "Compare every collective across ranks before it runs? "
                                         "(slower; finds ranks that disagree)",
                                         "debug"));
  }

  void ask_gpus() {
    if (machine_.gpus < 2) return;
    const std::string ids = prompter_.ask(
        "Which GPUs of this machine, as in 0,1", proposal_of(asking_, "gpu_ids", "all"),
        [this](const std::string& answer) {
          if (answer == "all") return std::string();
          if (!config::is_gpu_list(answer)) {
            return std::string("Numbers separated by commas, or all.");
          }
          const bool is_one_of_many = config::list_parts(answer).size() < 2 && machines_ == 1 &&
                                      document_.find("distributed_type")->text == "MULTI_GPU";
          return std::string(is_one_of_many ? "At least two, for several GPUs." : "");
        });
    document_.set("gpu_ids", FileNode::string(ids));
    document_.set("enable_cpu_affinity",
                  confirm_value(asking_, "Keep each process on the cores near its GPU?",
                                "enable_cpu_affinity"));
  }

  void ask_precision() {
    const FileNode* deepspeed = document_.find("deepspeed_config");
    if (deepspeed != nullptr && deepspeed->find("deepspeed_config_file") != nullptr) {
      return;  // that file says it
    }
    const bool has_fp8 = is_in_this_build(config::Capability::kFp8, machine_.capabilities);
    document_.set("mixed_precision", choose_value(asking_, "Mixed precision?", "mixed_precision",
                                                  "", has_fp8 ? "" : "fp8"));
  }

  // What was answered, read as a file that says it would be: no answer passes that a run refuses.
  FileNode checked_document() const {
    const char* answers = "the answers";
    const config::ConfigFile file = config::interpret_config(
        config::parse_config_text(config::yaml_text(document_), answers), answers);
    config::resolve_settings({.file = &file, .gpus = machine_.gpus});
    return config::complete_document(file);
  }

  bool is_present(const char* name) const {
    const auto found = machine_.present.find(name);
    return found != machine_.present.end() && config::truth_of(found->second).value_or(false);
  }

  size_t proposed_kind() const {
    const auto type = machine_.present.find("distributed_type");
    if (type == machine_.present.end()) return machine_.gpus > 1 ? 2 : 0;
    if (type->second == "NO") return 0;
    return type->second == "MULTI_CPU" || is_present("cpu") ? 1 : 2;
  }

  Prompter& prompter_;
  const MachineOffer& machine_;
  Asking asking_;
  FileNode document_;
  bool is_cpu_ = false;
  int machines_ = 1;
};

}  // namespace

FileNode ask_configuration(Prompter& prompter, const MachineOffer& machine) {
  RecallingPrompter recalling(prompter);
  while (true) {
    try {
      return Wizard(recalling, machine).run();
    } catch (const WentBack&) {
      recalling.forget_last();
    }
  }
}

}  // namespace accelerate::cli

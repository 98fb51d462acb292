#include "cli/help/man_page.h"

#include "config/schema.h"

namespace accelerate::cli {
namespace {

constexpr const char* kDescription = R"(.SH DESCRIPTION
Trains libtorch models on any number of devices: writes a configuration, starts the workers of a
training program on one machine or many, supervises them, and says what went wrong.
.PP
In long flags \- and _ are the same. A flag overrides an environment variable, which overrides the
configuration file, which overrides the default.
.B accelerate launch \-\-explain
prints every value and where it comes from.
)";

constexpr const char* kManTail = R"(.SH EXIT STATUS
.TP
.B 0
all went well
.TP
.B 1
the work failed: the input is damaged or of another kind than the command reads, or a check did not pass
.TP
.B 2
wrong usage: a flag, a value, a variable or a configuration file is invalid, or a path does not exist
.TP
.B 126, 127
the program may not be executed, or was not found
.TP
.B 128+N
a worker, or the launcher, was ended by signal N
.TP
.B other
the status of the worker that failed first
.SH EXAMPLES
.nf
accelerate config
accelerate launch \-\-num_processes 2 ./train \-\-epochs 3
accelerate launch \-\-config_file cluster.yaml \-\-dry_run ./train
.fi
)";

// Text that roff prints as it is.
std::string roff(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool begins_line = i == 0 || text[i - 1] == '\n';
    if (begins_line && (c == '.' || c == '\'')) result += "\\&";
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
  }
  return result;
}

std::string option_text(const OptionOutline& option) {
  std::string flags;
  for (const std::string& flag : option.flags) flags += (flags.empty() ? "" : ", ") + flag;
  std::string text = ".TP\n.B " + roff(flags.empty() ? option.name : flags);
  if (!flags.empty() && !option.placeholder.empty()) text += " " + roff(option.placeholder);
  text += "\n" + roff(option.help) + "\n";
  if (option.choices.size() > 2 && option.help.find(option.choices[0]) == std::string::npos) {
    std::string choices;
    for (const auto& choice : option.choices) choices += (choices.empty() ? "" : ", ") + choice;
    text += "(" + roff(choices) + ")\n";
  }
  return text;
}

void add_man_command(const CommandOutline& command, const std::string& path, std::string& page) {
  page += ".SS " + roff(path) + "\n" + roff(command.help) + "\n";
  std::string group;
  for (const OptionOutline& option : command.options) {
    if (!option.group.empty() && command.name != "launch") {
      page += ".PP\nAll flags of\n.B accelerate launch\nare taken too.\n";
      break;
    }
    if (option.group != group) {
      group = option.group;
      page += ".PP\n.I " + roff(group) + "\n";
    }
    page += option_text(option);
  }
  for (const CommandOutline& inner : command.commands) {
    add_man_command(inner, path + " " + inner.name, page);
  }
}

std::string environment_text() {
  std::string text =
      ".SH ENVIRONMENT\nEach variable sets the same value as the flag next to it.\n"
      ".TP\n.B HF_HOME, XDG_CACHE_HOME\nwhere the default configuration file is\n"
      ".TP\n.B PYTHON\nthe Python that runs programs in .py and modules\n";
  for (const config::Setting* setting : config::all_settings()) {
    const std::string variable = config::variable_of(*setting);
    if (variable.empty() || !setting->has_flag) continue;
    text += ".TP\n.B " + variable + "\n" + roff(config::flag_of(*setting)) + "\n";
  }
  return text;
}

}  // namespace

std::string man_page(const CommandOutline& program) {
  std::string page = ".TH ACCELERATE 1 \"\" \"accelerate " ACCELERATE_VERSION
                     "\" \"User Commands\"\n.SH NAME\naccelerate \\- train libtorch models on any "
                     "number of devices\n.SH SYNOPSIS\n.B accelerate\n.I command\n[flags]\n.br\n"
                     ".B accelerate launch\n[flags]\n.I program\n[arguments of program]\n";
  page += kDescription;
  page += ".SH OPTIONS\n";
  for (const OptionOutline& option : program.options) page += option_text(option);
  page += ".SH COMMANDS\n";
  for (const CommandOutline& command : program.commands) {
    add_man_command(command, program.name + " " + command.name, page);
  }
  page += environment_text();
  page +=
      ".SH FILES\n.TP\n.I ~/.cache/huggingface/accelerate/default_config.yaml\nthe "
      "configuration that\n.B accelerate config\nwrites and\n.B accelerate launch\nreads\n";
  return page + kManTail;
}

}  // namespace accelerate::cli

#include "cli/help/config_docs.h"

#include <algorithm>
#include <vector>

#include "config/capabilities.h"
#include "config/schema.h"

namespace accelerate::cli {
namespace {

using config::Effect;
using config::Group;
using config::Setting;

constexpr const char* kDocsHead = R"(# Configuration

Every setting has one name. It is a flag of `accelerate launch`, an environment variable and a key of a configuration
file. A flag overrides a variable, a variable overrides the file, and the file overrides the default.
`accelerate launch --explain` prints what is set and where it was set, `--explain --all` every value; `--dry_run` prints
what would be started.

![accelerate launch --explain](screens/launch_explain.svg)

In flags `-` and `_` are the same. Yes is written `y yes t true on 1`, no `n no f false off 0`, in upper or lower case. An
unknown flag, key or value is an error that says where it is and suggests the nearest known name.

![mistyped flags, keys and commands](screens/launch_mistake.svg)

## The file

`accelerate config` asks questions and writes `accelerate/default_config.yaml` below `$HF_HOME`, else below
`$XDG_CACHE_HOME/huggingface`, else below `~/.cache/huggingface`; `--config_file` names another, JSON if it ends in
`.json`. `accelerate launch` reads the default file if it is there. Files written by any version of Hugging Face
Accelerate are read as they are, and it reads ours.

| command | what it does |
|---|---|
| `accelerate config` | asks what matters; proposes the values of the existing file, or what fits the machine; Esc changes nothing |
| `accelerate config default` | writes a file for this machine without asking; never replaces an existing one |
| `accelerate config update` | rewrites a file of an older version with today's keys |
| `accelerate config show` | prints a file as accelerate reads it |
| `accelerate to-fsdp2` | converts an `fsdp_config` of version 1 |
| `accelerate tpu-config` | runs commands on all machines of a TPU pod; `--debug` prints what would run |

Choose with the arrow keys or the digit shown; `b` goes back to the previous question, Esc quits. Typed answers can be
edited, and the up arrow goes back from them. Through a pipe each answer is a line, and `<` goes back. In a file, null
means the same as a missing key.

![a question with a menu](screens/config_menu.svg)

![all questions, and the file that was written](screens/config_wizard.svg)

A session recorded in tmux, which starts from an existing file, goes back, quits, and starts over
(`scripts/draw_screens.py --only config_session` records it again):

![going back, quitting and answering all questions](screens/config_session.svg)

```yaml
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
mixed_precision: bf16
num_machines: 1
num_processes: 8
use_cpu: false
```

Effects: **used** by the launcher or the library; **passed on**: workers see the variable, which Python's library reads
and native programs do not; **none**: accepted, and listed as having no effect when a job starts.

FSDP and DeepSpeed shard native programs too, on CPUs and GPUs: [deepspeed.md](deepspeed.md). `launch` refuses what it cannot follow of them.
Megatron-LM, meshes, fp8 and devices other than CPUs and NVIDIA GPUs are not part of this build
(`src/config/capabilities.h`), and TPUs of a build with torch 2.9.0 alone ([tpu.md](tpu.md)). Files and flags that ask for them are read, shown by `--explain` and `--dry_run` and converted,
but `accelerate launch` and `accelerate test` refuse to start workers, and an `Accelerator` whose variables ask for them throws:
nothing is silently trained in another way. Python programs are started, since Python's library supports most of these;
TPUs are the exception.
`--dry_run` and `--explain` say what would be refused. Variables that name TPUs (`PJRT_DEVICE=TPU`) are refused like `--tpu`,
unless `--cpu` is given.

## Settings

This part is generated: `accelerate config docs > docs/configuration.md`.
)";

std::string code(const std::string& text) { return text.empty() ? "" : "`" + text + "`"; }

std::string values_of(const Setting& setting) {
  switch (setting.kind) {
    case config::Kind::kSwitch:
    case config::Kind::kBool:
      return "bool";
    case config::Kind::kInt:
      return "integer";
    case config::Kind::kFloat:
      return setting.unit == config::Unit::kSeconds ? "seconds" : "number";
    case config::Kind::kPath:
      return "path";
    case config::Kind::kList:
      return "list";
    case config::Kind::kText:
      return "text";
    case config::Kind::kChoice:
      break;
  }
  std::string text;
  for (const auto& choice : setting.choices)
    text += (text.empty() ? "" : " ") + code(std::string(choice));
  return text;
}

std::string effect_of(const Setting& setting) {
  switch (setting.effect) {
    case Effect::kUsed:
      return "used";
    case Effect::kForwarded:
      return "passed on";
    case Effect::kNone:
      return "none";
  }
  return "";
}

std::string flags_of_setting(const Setting& setting) {
  if (!setting.has_flag) return "";
  std::string text = code(config::flag_of(setting));
  if (!setting.short_flag.empty()) text += " " + code(std::string(setting.short_flag));
  if (!setting.negative_flag.empty()) text += " " + code("--" + std::string(setting.negative_flag));
  return text;
}

std::string note_on_group(Group group) {
  const config::CapabilityRow* missing = config::missing_for(group);
  if (missing == nullptr) return "";
  return std::string("\nNot part of this build, which refuses to start ") +
         (missing->is_left_to_python
              ? "native programs with it; Python programs get the variables.\n"
              : "any program with it.\n");
}

std::string row(const Setting& setting) {
  const bool is_decided = !setting.preset && !setting.fallback;
  const std::string value = config::default_of(setting);
  return "| " + (setting.has_flag ? flags_of_setting(setting) : code(std::string(setting.name))) +
         " | " + std::string(setting.help) + " | " + values_of(setting) + " | " +
         (is_decided ? value : code(value)) + " | " + code(std::string(setting.file_key)) + " | " +
         code(config::variable_of(setting)) + " | " + effect_of(setting) + " |\n";
}

}  // namespace

std::string settings_page() {
  std::string page = kDocsHead;
  std::vector<Group> done;
  for (const Setting* first : config::all_settings()) {
    if (std::find(done.begin(), done.end(), first->group) != done.end()) continue;
    done.push_back(first->group);
    page += "\n### " + std::string(config::title_of(first->group)) + "\n" +
            note_on_group(first->group) +
            "\n| flag | meaning | values | default | file | variable | effect |\n"
            "|---|---|---|---|---|---|---|\n";
    for (const Setting* setting : config::all_settings()) {
      if (setting->group == first->group) page += row(*setting);
    }
  }
  return page;
}

}  // namespace accelerate::cli

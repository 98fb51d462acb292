#include "cli/reports/setting_text.h"

#include <string_view>
#include <vector>

#include "base/word_list.h"
#include "config/capabilities.h"
#include "config/schema.h"
#include "config/value.h"

namespace accelerate::cli {
namespace {

using config::Setting;

// ": no, fp16 or bf16; fp8 is not part of this build"; "" where the help names the choices itself.
std::string choices_text(const Setting& setting) {
  if (setting.choices.empty() || setting.help.find(setting.choices[0]) != std::string_view::npos) {
    return "";
  }
  std::vector<std::string_view> present;
  std::vector<std::string_view> missing;
  for (const std::string_view choice : setting.choices) {
    (config::is_missing_choice(setting, choice) ? missing : present).push_back(choice);
  }
  std::string text = ": " + listed(present, "or");
  if (missing.empty()) return text;
  return text + "; " + listed(missing) + (missing.size() == 1 ? " is" : " are") +
         " not part of this build";
}

}  // namespace

std::string described(const Setting& setting) {
  std::string text = std::string(setting.help) + choices_text(setting);
  const std::string value = config::default_of(setting);
  if (!value.empty() && setting.kind != config::Kind::kSwitch) text += " [" + value + "]";
  const bool is_refused = config::missing_for(setting.group) != nullptr;
  if (setting.effect == config::Effect::kNone && !is_refused) text += " (no effect here)";
  return text;
}

std::string marked_title(config::Group group) {
  const std::string title(config::title_of(group));
  return config::missing_for(group) == nullptr ? title : title + " (not part of this build)";
}

}  // namespace accelerate::cli

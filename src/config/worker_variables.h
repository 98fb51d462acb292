// Settings as the workers see them.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/settings.h"

namespace accelerate::config {

// The variables by which workers are told their settings: those of Hugging Face Accelerate, so that
// Python programs understand them too. Ranks, addresses and threads are the launcher's own matter.
std::vector<std::pair<std::string, std::string>> worker_variables(const Settings& settings);

// What becomes of `setting` beside the others: those of DeepSpeed and FSDP do nothing unless these
// are switched on.
Effect effect_in(const Setting& setting, const Settings& settings);

// The settings that somebody gave, that say something else than their preset and that do nothing
// (Effect::kNone) or nothing to native programs (Effect::kForwarded), each by the place that gave
// it. What a file says for a way of distributing that a flag overrules is left out.
std::vector<std::string> settings_of_effect(const Settings& settings, Effect effect);

// Lines NAME=value for a file of variables that another machine's shell reads. What such a file
// cannot say is left out: an empty name or value, and ; < > space and line end in either.
std::vector<std::string> variable_lines(const std::map<std::string, std::string>& variables);

}  // namespace accelerate::config

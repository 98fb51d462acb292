#include "config/variable_names.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "accelerate/errors.h"
#include "base/nearest_name.h"
#include "config/capabilities.h"
#include "config/schema.h"

namespace accelerate::config {
namespace {

constexpr size_t kTypingError = 2;  // letters

// Read by the library or by Python's, and no settings of the launcher.
constexpr std::array<std::string_view, 18> kOthers = {"ACCELERATE_SUPERVISED_BY",
                                                      "ACCELERATE_ERROR_FD",
                                                      "ACCELERATE_TORCH_DEVICE",
                                                      "ACCELERATE_COLLECTIVE_LOG_DIR",
                                                      "ACCELERATE_CONFIG_DS_FIELDS",
                                                      "ACCELERATE_INIT_INCLUDE_BUFFERS",
                                                      "ACCELERATE_BYPASS_DEVICE_MAP",
                                                      "ACCELERATE_ALLOW_CP_STANDALONE",
                                                      "ACCELERATE_ENABLE_RICH",
                                                      "ACCELERATE_DEBUG_RDV_FILE",
                                                      "ACCELERATE_IN_TPU_POD",
                                                      "ACCELERATE_USE_SAGEMAKER",
                                                      "ACCELERATE_DOWNCAST_BF16",
                                                      "ACCELERATE_FP8_OVERRIDE_FPROP",
                                                      "ACCELERATE_FP8_OVERRIDE_DGRAD",
                                                      "ACCELERATE_FP8_OVERRIDE_WGRAD",
                                                      "ACCELERATE_FP8_USE_MXFP8_BLOCK_SCALING",
                                                      "ACCELERATE_SAGEMAKER_DISTRIBUTED_TYPE"};

bool is_other_known(const std::string& name) {
  return std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end() ||
         std::any_of(kCapabilities.begin(), kCapabilities.end(),
                     [&](const CapabilityRow& row) { return row.variable == name; });
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<std::string> variables_of_settings() {
  std::vector<std::string> known;
  for (const Setting* setting : all_settings()) {
    std::string variable = variable_of(*setting);
    if (!variable.empty()) known.push_back(std::move(variable));
  }
  return known;
}

}  // namespace

std::vector<std::string> variables_without_setting(const std::vector<std::string>& names) {
  const std::vector<std::string> known = variables_of_settings();
  std::vector<std::string> without;
  for (const std::string& name : names) {
    if (!name.starts_with("ACCELERATE_") && !name.starts_with("FSDP_")) continue;
    if (contains(known, name)) continue;
    if (is_other_known(name)) continue;
    without.push_back(name);
  }
  return without;
}

void refuse_mistyped_variables(const std::vector<std::string>& names) {
  const std::vector<std::string> known = variables_of_settings();
  for (const std::string& name : variables_without_setting(names)) {
    const std::string nearest = nearest_name(name, known, kTypingError);
    if (nearest.empty()) continue;
    throw ConfigError({.what = "no setting has the variable " + name,
                       .where = "environment variable " + name,
                       .hint = nearest + "? (unset it if another program needs it)"});
  }
}

}  // namespace accelerate::config

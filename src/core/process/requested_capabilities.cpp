#include "core/process/requested_capabilities.h"

#include <string>

#include "accelerate/errors.h"
#include "base/environment.h"
#include "config/capability_variables.h"

namespace accelerate {

void refuse_missing_capabilities(const EnvironmentLookup& lookup,
                                 const std::optional<MixedPrecision>& precision,
                                 std::span<const config::CapabilityRow> rows) {
  constexpr const char* kUseCpu = "ACCELERATE_USE_CPU";
  const std::string use_cpu = lookup(kUseCpu).value_or("");
  const bool on_cpu = !use_cpu.empty() && parse_flag(kUseCpu, use_cpu);
  for (const config::CapabilityRow& row : rows) {
    // The option counts before the variable.
    const bool is_decided = row.capability == config::Capability::kFp8 && precision.has_value();
    if (!is_decided) {
      config::refuse_variable_of(row, lookup, on_cpu);
    } else if (*precision == MixedPrecision::kFp8 && !row.is_in_this_build) {
      throw UsageError({.what = config::missing_text(row),
                        .where = "AcceleratorOptions::mixed_precision",
                        .hint = std::string(row.hint)});
    }
  }
}

}  // namespace accelerate

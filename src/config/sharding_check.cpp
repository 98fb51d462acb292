#include "config/sharding_check.h"

#include "config/given_settings.h"
#include "config/schema.h"
#include "config/sharding/deepspeed_keys.h"
#include "config/sharding/deepspeed_run.h"
#include "config/value.h"

namespace accelerate::config {

std::optional<ShardingRequest> requested_sharding(const Settings& settings) {
  const int ranks = settings.integer("num_processes").value_or(1);
  const GivenValues given = given_settings(settings);
  if (settings.is_on("use_fsdp")) return fsdp_request(given, ranks);
  if (!settings.is_on("use_deepspeed")) return std::nullopt;
  DeepspeedDocument document = deepspeed_document(given);
  static_cast<void>(keys_without_effect(document));  // throws for keys that are refused
  const Setting& precision = *find_setting("mixed_precision");
  set_precision(document, spelled_value(precision, settings.text(precision.name)),
                place_of(settings.of(precision).source));
  return deepspeed_request(document, ranks);
}

}  // namespace accelerate::config

// The warm-up schedules of DeepSpeed for an optimizer of torch.
#pragma once

#include "accelerate/schedules.h"
#include "config/sharding/warmup_schedule.h"

namespace accelerate {

// A step of it is an update of the optimizer. The options are not part of the saved state: they
// are those of the configuration.
Schedule warmup_schedule(const config::WarmupSchedule& schedule);

}  // namespace accelerate

// lambda_lr for functions of the library's own.
#pragma once

#include "optim/schedule_rule.h"

namespace accelerate {

// Saved as Transformers' schedules are: an empty dictionary for the function of each group.
Schedule named_lambda_lr(RateFunction factor);

}  // namespace accelerate

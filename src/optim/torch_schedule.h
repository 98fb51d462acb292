// Schedulers of torch::optim behind the interface of ours.
#pragma once

#include <functional>
#include <vector>

#include "accelerate/detail/torch_scheduler.h"
#include "accelerate/prepared_optimizer.h"
#include "accelerate/schedulers.h"

namespace accelerate {

// Finds the optimizer that a scheduler of torch moves, which keeps it to itself; null if it is not
// known (yet). `rates` asks the scheduler for the rates that its optimizer has.
using ScheduledOptimizer =
    std::function<torch::optim::Optimizer*(const std::function<std::vector<double>()>& rates)>;

// A Scheduler whose steps are those of `adapted`. Nothing asks for the optimizer before the first
// call that needs it; one that is not found then is a UsageError.
Scheduler adapt_torch_scheduler(detail::TorchScheduler adapted, ScheduledOptimizer find);

// Whether `rates`, those of a scheduler of torch, are read from the optimizer of `prepared`, or
// from the one that it converts to. Changes one for a moment to see.
bool reads_rates_of(const std::function<std::vector<double>()>& rates,
                    const PreparedOptimizer& prepared);

}  // namespace accelerate

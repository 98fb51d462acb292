// Which strategy an accelerator trains with.
#pragma once

#include <memory>
#include <optional>

#include "accelerate/flat.h"
#include "accelerate/strategy_options.h"

namespace accelerate {

// See StrategyOptions; `ddp` are the options for AutoStrategy, `flat` is
// AcceleratorOptions::flat. Throws UsageError for options that contradict each other or the number
// of ranks. Collective.
std::unique_ptr<Strategy> make_strategy(const StrategyOptions& options, const DdpOptions& ddp,
                                        const std::optional<FlatOptions>& flat,
                                        const StrategyContext& context);

// Other options of the same stage for a strategy that this has made and that has wrapped no model
// yet. Does nothing where there is nothing to share.
void set_zero_options(Strategy& strategy, const ZeroOptions& options);

}  // namespace accelerate

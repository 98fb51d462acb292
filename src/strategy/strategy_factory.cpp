// Which strategy trains a model.
#include <utility>

#include "strategy/ddp/ddp_strategy.h"
#include "strategy/single.h"

namespace accelerate {

std::unique_ptr<Strategy> make_strategy(std::shared_ptr<Communicator> communicator,
                                        const DdpOptions& options) {
  require_usable(options.comm_hook);  // also where it has nothing to do yet
  if (communicator->world_size() == 1) return std::make_unique<SingleStrategy>();
  return std::make_unique<DdpStrategy>(std::move(communicator), options);
}

}  // namespace accelerate

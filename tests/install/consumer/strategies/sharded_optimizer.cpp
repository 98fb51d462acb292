// Trains by the strategy of sharded_optimizer_strategy.h and by the library's own: ends with 1
// unless they agree. See piece_training.h for its arguments.
#include "piece_training.h"
#include "sharded_optimizer_strategy.h"

int main(int argc, char** argv) {
  return strategies::run_piece_training(argc, argv,
                                        std::make_shared<strategies::ShardedOptimizerFactory>());
}

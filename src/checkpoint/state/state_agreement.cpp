#include "checkpoint/state/state_agreement.h"

#include "accelerate/errors.h"

namespace accelerate::checkpoint {

void throw_of_checkpoint(const Communicator& ranks, const comm::RankFailure& failure) {
  comm::RankFailure of_checkpoint = failure;
  if (failure.kind != comm::ErrorKind::kUsage) of_checkpoint.kind = comm::ErrorKind::kCheckpoint;
  comm::throw_as_it_was(ranks, of_checkpoint);
}

void agree(Communicator& ranks, const std::function<void()>& work,
           const AgreementOptions& options) {
  comm::together(ranks, work,
                 {.without_timeout = options.takes_long,
                  .keep_own = options.keep_own,
                  .take_back = options.take_back,
                  .retell = throw_of_checkpoint});
}

}  // namespace accelerate::checkpoint

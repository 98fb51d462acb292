#include <mutex>

#include "checkpoint/state/save_ticket_state.h"

namespace accelerate {

const std::filesystem::path& SaveTicket::directory() const { return state_->directory; }

bool SaveTicket::done() const {
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

void SaveTicket::wait() const {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->done; });
  if (!state_->error) return;
  state_->error_seen = true;
  std::rethrow_exception(state_->error);
}

}  // namespace accelerate

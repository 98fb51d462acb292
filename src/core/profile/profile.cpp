// The handle of a profile.
#include <exception>
#include <string>
#include <utility>

#include "accelerate/detail/stamped.h"
#include "accelerate/log.h"
#include "accelerate/profiler.h"
#include "core/profile/profile_session.h"

namespace accelerate {

Profile::Profile(std::unique_ptr<detail::ProfileSession> session)
    : exceptions_at_begin_(std::uncaught_exceptions()), session_(std::move(session)) {}

Profile::Profile(Profile&&) noexcept = default;

Profile::~Profile() {
  if (!session_) return;
  try {
    session_->end_alone(std::uncaught_exceptions() > exceptions_at_begin_);
  } catch (const std::exception& error) {
    log(LogLevel::kError, std::string("profile: ") + error.what());
  }
}

void Profile::step() {
  detail::stamped(session_->state(), [this] { session_->step(); });
}
int64_t Profile::step_num() const { return session_->step_num(); }
ProfileAction Profile::action() const { return session_->action(); }
void Profile::end() {
  detail::stamped(session_->state(), [this] { session_->end(); });
}
std::optional<ProfileTrace> Profile::trace() const { return session_->trace(); }
StepTimes Profile::step_times() const { return session_->step_times(); }
std::vector<StepTimes> Profile::step_times_of_all_ranks() const {
  return session_->step_times_of_all_ranks();
}

}  // namespace accelerate

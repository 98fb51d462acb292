// The handle of a profile.
#include <exception>
#include <string>
#include <utility>

#include "accelerate/detail/stamped.h"
#include "accelerate/log.h"
#include "accelerate/profiler.h"
#include "core/profile/profile_session.h"

namespace accelerate {
namespace {

detail::ProfileSession& open_session(const std::unique_ptr<detail::ProfileSession>& session) {
  if (session) return *session;
  throw UsageError({.what = "a profile that was moved from",
                    .where = "profile",
                    .hint = "use the one that it was moved to"});
}

}  // namespace

Profile::Profile(std::unique_ptr<detail::ProfileSession> session)
    : exceptions_at_begin_(std::uncaught_exceptions()), session_(std::move(session)) {}

Profile::Profile(Profile&&) noexcept = default;

Profile::~Profile() {
  if (!session_) return;
  try {
    session_->end_alone(std::uncaught_exceptions() > exceptions_at_begin_);
  } catch (const std::exception& error) {
    log(LogLevel::kError, std::string("profile: ") + error.what());
  } catch (...) {
    log(LogLevel::kError, "profile: an exception that is not a std::exception");
  }
}

void Profile::step() {
  detail::ProfileSession& session = open_session(session_);
  detail::stamped(session.state(), [&] { session.step(); });
}
void Profile::end() {
  detail::ProfileSession& session = open_session(session_);
  detail::stamped(session.state(), [&] { session.end(); });
}
int64_t Profile::step_num() const { return open_session(session_).step_num(); }
ProfileAction Profile::action() const { return open_session(session_).action(); }
std::optional<ProfileTrace> Profile::trace() const { return open_session(session_).trace(); }
StepTimes Profile::step_times() const { return open_session(session_).step_times(); }
std::vector<StepTimes> Profile::step_times_of_all_ranks() const {
  return open_session(session_).step_times_of_all_ranks();
}

}  // namespace accelerate

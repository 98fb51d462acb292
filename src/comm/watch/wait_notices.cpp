#include "comm/watch/wait_notices.h"

#include <optional>
#include <string>
#include <vector>

#include "accelerate/log.h"

namespace accelerate::comm {

void WaitNotices::look() {
  std::vector<uint16_t> own;
  for (const auto& group : groups_->all()) own.push_back(group->log->group());
  const std::optional<Event> wait = oldest_wait(*events_, own);
  const int64_t since = wait ? wait->time_ns : 0;
  if (since != since_) next_notice_ = kFirstNotice;
  since_ = since;
  if (!wait) return;
  const auto waited =
      std::chrono::steady_clock::now().time_since_epoch() - std::chrono::nanoseconds(since);
  if (waited < next_notice_) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(waited);
  log(LogLevel::kWarning, "waiting for other ranks for " + std::to_string(seconds.count()) +
                              " s: " + std::string(wait->text()));
  next_notice_ *= kNoticeFactor;
}

}  // namespace accelerate::comm

// Where the ranks of a group wait for each other before they leave it.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/watch/alarm.h"
#include "compat/c10d.h"

namespace accelerate::comm {

// Waits until all `ranks` of the group called `name` have called this, the alarm has rung or
// `limit` has passed: a store that does not answer holds nobody up. For groups whose exchanges run
// on a device: what a rank has sent may be under way to others when it has finished itself. Does
// not throw.
void meet_before_leaving(c10::intrusive_ptr<c10d::Store> store, const std::string& name, int ranks,
                         std::shared_ptr<const Alarm> alarm,
                         std::chrono::milliseconds limit) noexcept;

}  // namespace accelerate::comm

// Connections that are tried for a moment, and whether a port answers yet.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "base/unique_fd.h"

namespace accelerate::comm {

// A socket that is connected to `host`:`port`, and does not block; nothing if none of its addresses
// accepts within `patience` each.
UniqueFd connect_within(const std::string& host, uint16_t port, std::chrono::milliseconds patience);

// Blocks until something accepts connections at host:port or the deadline passes; returns whether
// it does. Asks every few milliseconds: libtorch's own client waits a whole second after its first
// refusal, which would be most of the start-up time of a job. Leaves no connection open.
bool wait_until_listening(const std::string& host, uint16_t port,
                          std::chrono::steady_clock::time_point deadline);

// Blocks until the system knows an address of `host` or the deadline passes: names may come late
// where machines start together. Returns "", or what the system says of the name. Calls `tell` with
// that once, if it takes more than a moment.
std::string wait_until_known(const std::string& host,
                             std::chrono::steady_clock::time_point deadline,
                             const std::function<void(const std::string&)>& tell);

}  // namespace accelerate::comm

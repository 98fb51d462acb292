// Whether a port answers yet.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace accelerate::comm {

// Blocks until something accepts connections at host:port or the deadline passes; returns whether
// it does. Asks every few milliseconds: libtorch's own client waits a whole second after its first
// refusal, which would be most of the start-up time of a job. Leaves no connection open.
bool wait_until_listening(const std::string& host, uint16_t port,
                          std::chrono::steady_clock::time_point deadline);

}  // namespace accelerate::comm

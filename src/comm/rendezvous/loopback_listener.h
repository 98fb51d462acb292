// A port of this machine alone, for the store of a job that runs on it alone.
#pragma once

#include <cstdint>
#include <string>

#include "base/unique_fd.h"

namespace accelerate::comm {

// A socket bound to `host`:`port`, for a server to listen on. Nothing where
// `host` is not written as an IPv4 loopback address, or where the port cannot be had: libtorch then
// binds one itself, or says why it cannot.
//
// libtorch's own socket is one of IPv6, to which a rank on 127.0.0.1 seems to come from
// ::ffff:127.0.0.1. Its store asks for the name of whoever connects, and /etc/hosts knows that one
// not: every rank would wait for the name server, for seconds where it is slow.
UniqueFd bind_loopback(const std::string& host, uint16_t port);

}  // namespace accelerate::comm

// Sockets as launchers on several machines need them.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace accelerate::launch {

// A socket that listens to `port` on all addresses and does not block. While the port is in use,
// tries again for `patience`, which blocks. Throws ConfigError, naming --main_process_port, if it
// still is.
UniqueFd listen_everywhere(int port,
                           std::chrono::milliseconds patience = std::chrono::milliseconds(0));

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

// What a host name means: addresses, or why there are none.
struct ResolvedHost {
  Addresses addresses{};
  std::string error{};
};
enum class Resolving {
  kNames,        // may block as long as the system's resolver does
  kFiguresOnly,  // names mean nothing; never blocks
};
ResolvedHost resolve(const std::string& host, int port, Resolving how);

// An attempt to connect, under way or done: poll it for POLLOUT. The socket is empty, and error
// says why, if it cannot even begin.
struct Connecting {
  UniqueFd socket{};
  std::string error{};
};
// One attempt for each address; one with the error if there is none. Does not block.
std::vector<Connecting> begin_connecting(const ResolvedHost& host);
// "" if the socket is connected, else what went wrong.
std::string connection_error(int socket);

// "10.0.0.2", without the port.
std::string address_text(const sockaddr_storage& address);

// Whether `host`, a name or an address, is this machine. May block as the resolver does.
bool is_own_address(const std::string& host);

// Throws ConfigError, naming --main_process_ip and the addresses that there are, if `host` is not
// an address of this machine.
void require_own_address(const std::string& host);

}  // namespace accelerate::launch

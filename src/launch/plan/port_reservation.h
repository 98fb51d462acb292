// A port for the rendezvous that nobody else can take before rank 0 does.
#pragma once

#include "base/unique_fd.h"

namespace accelerate::launch {

// Holds a TCP port from the launcher's side: a socket is bound to it but never listens. As long as
// this object lives the kernel gives the port to no one who asks for any port, by bind or by
// connect; a server that names it and sets SO_REUSEADDR, as libuv and torch do, can bind it and
// listen. Workers do not inherit the socket.
class PortReservation {
 public:
  // A port that is free on all addresses, IPv4 and IPv6. Throws CommError if there is none.
  static PortReservation any();

  // The port that the user named, 1 to 65535. Throws ConfigError, naming --main_process_port, if
  // it is in use or not ours to take. Connections of an earlier job that still linger do no harm.
  static PortReservation of(int port);

  int port() const { return port_; }

 private:
  PortReservation(UniqueFd socket, int port) : socket_(std::move(socket)), port_(port) {}

  UniqueFd socket_;
  int port_;
};

}  // namespace accelerate::launch

// Stands before the system's getnameinfo() in a test program, whose main() includes it: c10d asks
// for the name of every peer, and a name server may take seconds to answer, or lose the question.
// Here an address is its name.
#pragma once

#include <dlfcn.h>
#include <netdb.h>

extern "C" __attribute__((visibility("default"))) int getnameinfo(
    const sockaddr* address, socklen_t size, char* host, socklen_t host_size, char* service,
    socklen_t service_size, int flags) {
  using Namer = int (*)(const sockaddr*, socklen_t, char*, socklen_t, char*, socklen_t, int);
  static const auto of_the_system = reinterpret_cast<Namer>(dlsym(RTLD_NEXT, "getnameinfo"));
  return of_the_system(address, size, host, host_size, service, service_size,
                       flags | NI_NUMERICHOST);
}

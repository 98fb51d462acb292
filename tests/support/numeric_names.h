// Stands before the system's resolver in a test program, whose main() includes it: a name server
// may take seconds to answer, or lose the question. c10d asks for the name of every peer: here an
// address is its name. And tests ask for names under .invalid, which nobody has: that is known
// here.
#pragma once

#include <dlfcn.h>
#include <netdb.h>

#include <string_view>

extern "C" __attribute__((visibility("default"))) int getnameinfo(
    const sockaddr* address, socklen_t size, char* host, socklen_t host_size, char* service,
    socklen_t service_size, int flags) {
  using Namer = int (*)(const sockaddr*, socklen_t, char*, socklen_t, char*, socklen_t, int);
  static const auto of_the_system = reinterpret_cast<Namer>(dlsym(RTLD_NEXT, "getnameinfo"));
  return of_the_system(address, size, host, host_size, service, service_size,
                       flags | NI_NUMERICHOST);
}

extern "C" __attribute__((visibility("default"))) int getaddrinfo(const char* host,
                                                                  const char* service,
                                                                  const addrinfo* hints,
                                                                  addrinfo** found) {
  if (host != nullptr && std::string_view(host).ends_with(".invalid")) return EAI_NONAME;
  using Resolver = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto of_the_system = reinterpret_cast<Resolver>(dlsym(RTLD_NEXT, "getaddrinfo"));
  return of_the_system(host, service, hints, found);
}

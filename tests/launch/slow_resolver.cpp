// Stands before the system's resolver in a process that preloads it: two names under .invalid,
// which nobody owns, take their time, and of the others it is known at once that nobody has them.
// No name server is asked.
#include <dlfcn.h>
#include <netdb.h>
#include <unistd.h>

#include <cstring>
#include <string_view>

extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  using Resolver = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  const auto system_resolver = reinterpret_cast<Resolver>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool asks_for_name = hints == nullptr || (hints->ai_flags & AI_NUMERICHOST) == 0;
  if (asks_for_name && host != nullptr && std::strcmp(host, "never.invalid") == 0) {
    for (;;) sleep(3600);
  }
  if (asks_for_name && host != nullptr && std::strcmp(host, "slow.invalid") == 0) {
    usleep(700'000);
    return system_resolver("127.0.0.1", service, hints, found);
  }
  if (asks_for_name && host != nullptr && std::string_view(host).ends_with(".invalid")) {
    return EAI_NONAME;
  }
  return system_resolver(host, service, hints, found);
}

// An option of the program that a configuration decides too.
#pragma once

#include <string>
#include <type_traits>

#include "config/sharding/given_values.h"

namespace accelerate {

// `option` becomes `configured`, which `place` gave, unless the program set it: then both must be
// the same. Throws ConfigError that names both places. `name` is that of the option.
template <class T>
void settle_option(T& option, const T& preset, const std::type_identity_t<T>& configured,
                   const std::string& name, const std::string& place) {
  if (option == configured) return;
  if (option == preset) {
    option = configured;
    return;
  }
  config::refuse_contradiction("the program and the configuration set " + name + " differently",
                               name, place, "leave one of them out");
}

}  // namespace accelerate

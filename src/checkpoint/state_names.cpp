#include "checkpoint/state_names.h"

namespace accelerate::checkpoint {

std::string name_list(const std::vector<std::string>& names) {
  constexpr size_t kMostNames = 8;
  std::string text;
  for (size_t i = 0; i < names.size() && i < kMostNames; ++i) {
    if (i > 0) text += ", ";
    text += names[i];
  }
  if (names.size() > kMostNames) {
    text += " and " + std::to_string(names.size() - kMostNames) + " more";
  }
  return text;
}

}  // namespace accelerate::checkpoint

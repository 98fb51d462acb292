#include "checkpoint/name_list.h"

namespace accelerate::checkpoint {

std::string name_list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace accelerate::checkpoint

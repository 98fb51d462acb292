// Commands and flags as scripts for completion and the manual need them.
#pragma once

#include <string>
#include <vector>

namespace accelerate::cli {

struct OptionOutline {
  std::vector<std::string> flags{};  // "-m", "--module"; none: a word without a flag
  std::string name{};                // of such a word
  std::string help{};
  std::string placeholder{};           // "" where it takes no value
  std::vector<std::string> choices{};  // the values that it takes, where they are few
  bool is_path = false;
  std::string group{};  // "" where there is one group alone
};

struct CommandOutline {
  std::string name{};
  std::string help{};
  std::vector<OptionOutline> options{};
  std::vector<CommandOutline> commands{};
};

}  // namespace accelerate::cli

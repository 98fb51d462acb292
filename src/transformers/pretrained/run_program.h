// Another program, run to its end, with nothing to read on its standard input.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace accelerate::transformers {

struct ProgramResult {
  int exit_code = 0;     // 128 and the number of the signal, if one ended it
  std::string output{};  // what it wrote to its standard output
  std::string errors{};  // and to its standard error
};

struct Program {
  // The first is its name, looked up in PATH. No shell sees them.
  std::vector<std::string> arguments{};
  // Set for the program beside the variables of this process; nothing: taken away.
  std::map<std::string, std::optional<std::string>> environment{};
};

// Blocks until it ends. Nothing where there is no such program. Throws std::system_error if it
// cannot be started for another reason. Any thread.
std::optional<ProgramResult> run_program(const Program& program);

}  // namespace accelerate::transformers

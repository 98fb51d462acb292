// What main() knows of a command.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace accelerate::cli {

struct Command {
  CLI::App* app = nullptr;     // where its flags are declared
  std::function<int()> run{};  // after the command line was read; returns the exit code
};

}  // namespace accelerate::cli

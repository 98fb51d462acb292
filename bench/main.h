// The last word of a benchmark: an error is a line, not a stack.
#pragma once

#include <exception>
#include <iostream>

namespace bench {

// What main() returns: the result of `body`, or 1 after the line "<name>: <error>".
inline int run_main(const char* name, int (*body)(int, char**), int argc, char** argv) {
  try {
    return body(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << name << ": " << error.what() << std::endl;
    return 1;
  }
}

}  // namespace bench

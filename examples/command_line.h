// How the examples read their command lines: --name value or --name=value.
#pragma once

#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <string>

// What to do with the value of each option; throws if it cannot be that.
using OptionSetters = std::map<std::string, std::function<void(const std::string&)>>;

// Prints what is wrong and what is known to standard error and ends the program with status 2.
[[noreturn]] inline void refuse_options(const std::string& program, const std::string& what,
                                        const OptionSetters& setters) {
  std::cerr << program << ": " << what << "\n  known:";
  for (const auto& [name, setter] : setters) std::cerr << " " << name;
  std::cerr << "\n";
  std::exit(2);
}

inline void read_options(int argc, char** argv, const OptionSetters& setters) {
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    std::string value;
    if (const size_t equals = name.find('='); equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    } else if (i + 1 < argc) {
      value = argv[++i];
    }
    const auto setter = setters.find(name);
    if (setter == setters.end()) refuse_options(argv[0], "unknown option " + name, setters);
    try {
      setter->second(value);
    } catch (const std::exception&) {
      refuse_options(argv[0], name + " cannot be '" + value + "'", setters);
    }
  }
}

// Runs the program; what it throws is printed, and the status is 1.
template <class Program>
int run_program(Program program) {
  try {
    return program();
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}

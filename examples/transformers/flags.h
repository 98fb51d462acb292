// The command line of these examples: --name value or --name=value, each with a default.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>
#include <string>

// Prints what is wrong to standard error and ends the program with status 2 if it cannot be read.
class Flags {
 public:
  Flags(int argc, char** argv, std::map<std::string, std::string> defaults)
      : program_(argv[0]), values_(std::move(defaults)) {
    for (int i = 1; i < argc; ++i) {
      std::string name = argv[i];
      std::string value;
      if (const size_t equals = name.find('='); equals != std::string::npos) {
        value = name.substr(equals + 1);
        name.resize(equals);
      } else if (i + 1 < argc) {
        value = argv[++i];
      }
      const auto known = values_.find(name);
      if (known == values_.end()) refuse("unknown option " + name);
      known->second = value;
    }
  }

  const std::string& text(const std::string& name) const { return values_.at(name); }
  int64_t integer(const std::string& name) const {
    return read<int64_t>(name,
                         [](const std::string& v, size_t* end) { return std::stoll(v, end); });
  }
  double number(const std::string& name) const {
    return read<double>(name, [](const std::string& v, size_t* end) { return std::stod(v, end); });
  }

 private:
  template <class Number, class Parse>
  Number read(const std::string& name, Parse parse) const {
    const std::string& value = text(name);
    size_t end = 0;
    Number result = 0;
    try {
      result = parse(value, &end);
    } catch (const std::exception&) {
      end = std::string::npos;
    }
    if (end != value.size()) refuse(name + " cannot be '" + value + "'");
    return result;
  }
  [[noreturn]] void refuse(const std::string& what) const {
    std::cerr << program_ << ": " << what << "\n  known:";
    for (const auto& [name, value] : values_) std::cerr << " " << name;
    std::cerr << "\n";
    std::exit(2);
  }

  std::string program_;
  std::map<std::string, std::string> values_;
};

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

// The command line of these examples: --name value or --name=value, each with a default.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <utility>

#include "../command_line.h"

// Prints what is wrong to standard error and ends the program with status 2 if it cannot be read.
class Flags {
 public:
  Flags(int argc, char** argv, std::map<std::string, std::string> defaults)
      : program_(argv[0]), values_(std::move(defaults)) {
    for (auto& [name, value] : values_) {
      setters_[name] = [&value](const std::string& given) { value = given; };
    }
    read_options(argc, argv, setters_);
  }

  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  const std::string& text(const std::string& name) const { return values_.at(name); }
  int64_t integer(const std::string& name) const {
    return read<int64_t>(name,
                         [](const std::string& v, size_t* end) { return std::stoll(v, end); });
  }
  // `least` or more.
  int64_t count(const std::string& name, int64_t least) const {
    const int64_t value = integer(name);
    if (value >= least) return value;
    refuse_options(
        program_,
        name + " cannot be " + text(name) + ", it is " + std::to_string(least) + " or more",
        setters_);
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
    if (end != value.size()) {
      refuse_options(program_, name + " cannot be '" + value + "'", setters_);
    }
    return result;
  }
  std::string program_;
  std::map<std::string, std::string> values_;
  OptionSetters setters_{};  // they refer to the values
};

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
  struct Flag {
    std::string preset{};
    std::string help{};
  };

  Flags(int argc, char** argv, const std::string& about, const std::map<std::string, Flag>& flags)
      : program_(program_name(argv)) {
    OptionTable options;
    for (const auto& [name, flag] : flags) {
      std::string& value = values_[name] = flag.preset;
      options[name] = {flag.help + " [" + flag.preset + "]",
                       [&value](const std::string& given) { value = given; }};
    }
    read_options(argc, argv, about, options);
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
    refuse_options(program_, name + " cannot be " + text(name) + ", it is " +
                                 std::to_string(least) + " or more");
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
      refuse_options(program_, name + " cannot be '" + value + "'");
    }
    return result;
  }
  std::string program_;
  std::map<std::string, std::string> values_{};
};

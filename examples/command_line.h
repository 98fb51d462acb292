// How the examples read their command lines: options (--name value or --name=value), or a few words
// in order. --help says what a program does and takes; what cannot be read is answered by one line
// of usage and status 2, whatever the number of processes.
#pragma once

#include <accelerate/run.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

inline std::string program_name(char** argv) {
  return std::filesystem::path(argv[0]).filename().string();
}

inline bool asks_for_help(std::string_view word) { return word == "--help" || word == "-h"; }

// "usage: program [FILE]"
inline std::string usage_of(const std::string& program, const std::string& usage) {
  return "usage: " + program + (usage.empty() ? "" : " ") + usage;
}

// Whether this process speaks for all those that a launcher started.
inline bool is_first_process() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* rank = std::getenv(name)) return std::string_view(rank) == "0";
  }
  return true;
}

// Says what is wrong and how the program is called, and ends it. accelerate::run() prints it once
// for all processes.
[[noreturn]] inline void refuse_words(const std::string& program, const std::string& what,
                                      const std::string& usage) {
  accelerate::run([&] {
    throw std::invalid_argument(program + ": " + what + "; " + usage_of(program, usage));
  });
  std::exit(2);
}

// Prints `help` once for all processes, and ends the program.
[[noreturn]] inline void print_help(const std::string& help) {
  if (is_first_process()) std::cout << help << std::flush;
  std::exit(0);
}

// The number that all of `text` is; throws if it is none.
template <class Number>
Number number_in(const std::string& text) {
  std::istringstream stream(text);
  Number number{};
  char rest = 0;
  const bool is_number = static_cast<bool>(stream >> number) && !(stream >> rest);
  const bool is_wrapped = std::is_unsigned_v<Number> && text.find('-') != std::string::npos;
  if (!is_number || is_wrapped) throw std::invalid_argument(text);
  return number;
}

// The words of a program that takes no options. `usage` names them, those that may be left out in
// brackets: "FILE [BATCHES]".
class Words {
 public:
  Words(int argc, char** argv, std::string usage, const std::string& about)
      : program_(program_name(argv)), usage_(std::move(usage)), words_(argv + 1, argv + argc) {
    if (std::any_of(words_.begin(), words_.end(), asks_for_help)) {
      print_help(usage_of(program_, usage_) + "\n" + about + "\n");
    }
    std::istringstream names(usage_);
    size_t needed = 0;
    size_t allowed = 0;
    for (std::string name; names >> name; ++allowed) needed += name.front() == '[' ? 0 : 1;
    for (const std::string& word : words_) {
      if (word.starts_with("-")) refuse(word + " is not known");
    }
    if (words_.size() < needed) refuse("something is missing");
    if (words_.size() > allowed) refuse(words_[allowed] + " is an unexpected argument");
  }

  std::string text(size_t place, const std::string& otherwise = "") const {
    return place < words_.size() ? words_[place] : otherwise;
  }
  // One of `choices`.
  std::string choice(size_t place, const std::vector<std::string>& choices,
                     const std::string& otherwise) const {
    const std::string word = text(place, otherwise);
    if (std::find(choices.begin(), choices.end(), word) == choices.end()) {
      refuse(word + " is not one of the choices");
    }
    return word;
  }
  // The name of a file, which may be missing where `may_be_missing`.
  std::string file(size_t place, const std::string& otherwise = "",
                   bool may_be_missing = false) const {
    std::string name = text(place, otherwise);
    std::error_code unknown;
    const bool is_there = std::filesystem::exists(name, unknown);
    if (std::filesystem::is_directory(name, unknown)) refuse(name + " is a folder, not a file");
    if (!may_be_missing && !is_there) refuse("there is no file " + name);
    return name;
  }
  // A whole number from 1 on.
  int64_t count(size_t place, int64_t otherwise) const {
    if (place >= words_.size()) return otherwise;
    try {
      const auto number = number_in<int64_t>(words_[place]);
      if (number >= 1) return number;
    } catch (const std::exception&) {  // told below
    }
    refuse(words_[place] + " is not a whole number from 1 on");
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const { refuse_words(program_, what, usage_); }

  std::string program_;
  std::string usage_;
  std::vector<std::string> words_;
};

struct Option {
  std::string help{};
  std::function<void(const std::string&)> set{};  // throws if the value cannot be that
};
using OptionTable = std::map<std::string, Option>;

// As an option that reads a number into `to`.
template <class Number>
Option number_option(std::string help, Number& to) {
  return {std::move(help), [&to](const std::string& text) { to = number_in<Number>(text); }};
}

// The same, not below `least`.
template <class Number>
Option number_option(std::string help, Number& to, Number least) {
  return {std::move(help), [&to, least](const std::string& text) {
            const Number number = number_in<Number>(text);
            if (number < least) throw std::invalid_argument(text);
            to = number;
          }};
}

[[noreturn]] inline void refuse_options(const std::string& program, const std::string& what) {
  refuse_words(program, what, "[--option value ...], --help lists the options");
}

inline void read_options(int argc, char** argv, const std::string& about,
                         const OptionTable& options) {
  const std::string program = program_name(argv);
  if (std::any_of(argv + 1, argv + argc, asks_for_help)) {
    std::string help = usage_of(program, "[--option value ...]") + "\n" + about + "\n\n";
    for (const auto& [name, option] : options) {
      help += "  " + name + std::string(std::max<size_t>(20, name.size() + 2) - name.size(), ' ') +
              option.help + "\n";
    }
    print_help(help);
  }
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    std::string value;
    const size_t equals = name.find('=');
    if (equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    const auto option = options.find(name);
    if (option == options.end()) refuse_options(program, name + " is not known");
    if (equals == std::string::npos) {
      if (i + 1 == argc) refuse_options(program, name + " needs a value");
      value = argv[++i];
    }
    try {
      option->second.set(value);
    } catch (const std::exception&) {
      refuse_options(program, name + " cannot be '" + value + "'");
    }
  }
}

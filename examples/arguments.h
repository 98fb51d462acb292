// The command line that the examples share: --name value or --name=value.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <string>

struct Arguments {
  int64_t epochs = 2;
  int64_t batch_size = 64;  // of each process
  double lr = 3e-3;
  uint64_t seed = 1;
  std::filesystem::path data = "/usr/share/datasets/fashion-mnist";
};

// Prints what is wrong to standard error and ends the program with status 2 if it cannot be read.
inline Arguments parse_arguments(int argc, char** argv) {
  Arguments arguments;
  const std::map<std::string, std::function<void(const std::string&)>> setters{
      {"--epochs", [&](const std::string& text) { arguments.epochs = std::stoll(text); }},
      {"--batch_size", [&](const std::string& text) { arguments.batch_size = std::stoll(text); }},
      {"--lr", [&](const std::string& text) { arguments.lr = std::stod(text); }},
      {"--seed", [&](const std::string& text) { arguments.seed = std::stoull(text); }},
      {"--data", [&](const std::string& text) { arguments.data = text; }},
  };
  const auto refuse = [&](const std::string& what) {
    std::cerr << argv[0] << ": " << what << "\n  known:";
    for (const auto& [name, setter] : setters) std::cerr << " " << name;
    std::cerr << "\n";
    std::exit(2);
  };
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
    if (setter == setters.end()) refuse("unknown option " + name);
    try {
      setter->second(value);
    } catch (const std::exception&) {
      refuse(name + " cannot be '" + value + "'");
    }
  }
  return arguments;
}

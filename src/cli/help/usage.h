// Command lines that are wrong: what is wrong with them, and the nearest that is right.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Error;
class Validator;
}  // namespace CLI

namespace accelerate::cli {

// Throws UsageError for a command line that `program`, the App of the whole program, could not
// parse because of `error`. A flag or a command that there is not is named first, with the nearest
// that there is.
[[noreturn]] void refuse_command_line(const CLI::App& program, const CLI::Error& error);

// Lets a value of `option`, "--optimizer" or a word without a flag, be one of `choices` alone.
// Throws UsageError with what `hints` have for the word, else with the nearest of the choices.
CLI::Validator one_of(std::string option, std::vector<std::string> choices,
                      std::map<std::string, std::string> hints = {});

// Throws UsageError if nothing has the name `path`: what a command reads is not there. `hint` says
// what to name.
void require_something_at(const std::filesystem::path& path, const std::string& hint);

}  // namespace accelerate::cli

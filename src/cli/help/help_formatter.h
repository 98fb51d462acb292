// How the help of the program is laid out.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace accelerate::cli {

// CLI11's layout with a usage line that is written by hand, one empty line between groups, and of
// an option only its name and the kind of its value: limits stand in the description where they
// matter, and in the error when they are broken. Lines of a footer that follow each other are one
// paragraph; indented ones stand alone.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::string usage);

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_footer(const CLI::App* app) const override;

 private:
  std::string usage_;
};

// Gives `app` that layout and -h. `usage` is the first line of its help.
void add_help(CLI::App& app, std::string usage);

// Adds the command `name` to `app`, with add_help(). `help` is its line in the help of `app`.
CLI::App* add_command(CLI::App& app, const std::string& name, const std::string& help,
                      std::string usage);

}  // namespace accelerate::cli

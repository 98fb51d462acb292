#include "cli/help/help_formatter.h"

#include <unistd.h>

#include <utility>

#include "base/terminal_colours.h"
#include "cli/reports/print_output.h"

namespace accelerate::cli {

HelpFormatter::HelpFormatter(std::string usage) : usage_(std::move(usage)) { column_width(32); }

std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode mode) const {
  std::string help = CLI::Formatter::make_help(app, std::move(name), mode);
  for (size_t at = help.find("\n\n\n"); at != std::string::npos; at = help.find("\n\n\n", at)) {
    help.erase(at, 1);
  }
  while (help.ends_with("\n\n")) help.pop_back();
  return coloured_output(wrapped_lines(help, kHelpWidth), shows_colours(STDOUT_FILENO));
}

std::string HelpFormatter::make_usage(const CLI::App*, std::string) const {
  return "\nUsage: " + usage_ + "\n";
}

std::string HelpFormatter::make_footer(const CLI::App* app) const {
  std::string footer = CLI::Formatter::make_footer(app);
  const auto is_text = [&](size_t place) {
    return place < footer.size() && footer[place] != '\n' && footer[place] != ' ';
  };
  size_t begin = 0;
  for (size_t end = footer.find('\n'); end != std::string::npos; end = footer.find('\n', end + 1)) {
    if (is_text(begin) && is_text(end + 1)) {
      footer[end] = ' ';
    } else {
      begin = end + 1;
    }
  }
  return footer;
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  return option->get_type_size() == 0 ? "" : " " + option->get_type_name();
}

void add_help(CLI::App& app, std::string usage) {
  app.formatter(std::make_shared<HelpFormatter>(std::move(usage)));
  app.set_help_flag("-h,--help", "Print this help and exit");
}

CLI::App* add_command(CLI::App& app, const std::string& name, const std::string& help,
                      std::string usage) {
  CLI::App* command = app.add_subcommand(name, help);
  add_help(*command, std::move(usage));
  return command;
}

}  // namespace accelerate::cli

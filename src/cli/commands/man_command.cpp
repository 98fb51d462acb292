#include "cli/commands/man_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/commands/command_outline.h"
#include "cli/help/help_formatter.h"
#include "cli/help/man_page.h"

namespace accelerate::cli {

Command setup_man(CLI::App& app) {
  CLI::App* command =
      add_command(app, "man", "Print the manual page accelerate(1)", "accelerate man");
  command->footer("To read it where it is not installed: accelerate man | man -l -");
  return {command, [] {
            const std::string page = man_page(outline_program());
            std::fwrite(page.data(), 1, page.size(), stdout);
            return 0;
          }};
}

}  // namespace accelerate::cli

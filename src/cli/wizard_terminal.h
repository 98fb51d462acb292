// A menu in the terminal.
#pragma once

#include <string>
#include <vector>

#include "cli/wizard_input.h"

namespace accelerate::cli {

// Lets the person choose one of `options` with the arrow keys (or j and k, Home and End, or the
// number) and Enter. Descriptors 0 and 1 must be a terminal; it is as it was afterwards, also after
// an exception. Throws Interrupted at Ctrl-C, and when the program is told to stop.
size_t choose_in_terminal(const WizardInput& input, const std::string& question,
                          const std::vector<std::string>& options, size_t preset);

}  // namespace accelerate::cli

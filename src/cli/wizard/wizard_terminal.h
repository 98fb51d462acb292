// A menu and a line of text in the terminal.
#pragma once

#include <string>
#include <vector>

#include "cli/wizard/wizard_input.h"

namespace accelerate::cli {

// Lets the person choose one of `options` with the arrow keys (or j and k, Home and End, or the
// digit that is shown before it) and Enter. Descriptors 0 and 1 must be a terminal; it is as it was
// afterwards, also after an exception. Throws WentBack at b and the left arrow, Interrupted at Esc
// and Ctrl-C, and when the program is told to stop.
size_t choose_in_terminal(const WizardInput& input, const std::string& question,
                          const std::vector<std::string>& options, size_t preset);

// Asks for a line, which can be edited: arrows, Home and End, Backspace and Delete, Ctrl-A, E, U, K
// and W. An empty one means `preset`. Throws as choose_in_terminal(), WentBack at the upper arrow,
// and DataError at Ctrl-D in an empty line.
std::string edit_line_in_terminal(const WizardInput& input, const std::string& question,
                                  const std::string& preset);

}  // namespace accelerate::cli

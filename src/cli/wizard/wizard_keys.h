// Keys of a terminal, one by one.
#pragma once

#include <termios.h>

#include <cstddef>
#include <string>

#include "cli/wizard/wizard_input.h"

namespace accelerate::cli {

enum class Key {
  kUp,
  kDown,
  kLeft,
  kRight,
  kFirst,  // Home, Ctrl-A
  kLast,   // End, Ctrl-E
  kEnter,
  kBackspace,
  kDelete,
  kEraseLine,  // Ctrl-U
  kEraseRest,  // Ctrl-K
  kEraseWord,  // Ctrl-W
  kEnd,        // Ctrl-D
  kEscape,
  kText,  // a character that can be seen
  kOther,
};

struct KeyPress {
  Key key = Key::kOther;
  std::string text{};  // the character in UTF-8, of kText
};

// Blocks until a key is pressed. Throws Interrupted at Ctrl-C, when the input ends, and when the
// program is told to stop.
KeyPress read_key(const WizardInput& input);

// Keys arrive one by one and unseen while this lives. Descriptor 0 must be a terminal; it is as it
// was afterwards.
class RawTerminal {
 public:
  enum class Cursor { kShown, kHidden };

  explicit RawTerminal(Cursor cursor);
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;
  ~RawTerminal();

 private:
  termios before_{};
  Cursor cursor_;
};

// The columns of the terminal at descriptor 1; a large number where they are not known.
size_t terminal_columns();

}  // namespace accelerate::cli

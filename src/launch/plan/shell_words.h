// Command lines as text.
#pragma once

#include <string>
#include <vector>

namespace accelerate::launch {

// `words` as a shell would have to read them, quoted where need be.
std::string shell_line(const std::vector<std::string>& words);

// The words of `text`, separated by blanks: what a user writes for "ssh -p 2222".
std::vector<std::string> split_words(const std::string& text);

}  // namespace accelerate::launch

// Texts of JSON files in messages.
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

namespace accelerate::files {

// Cut to what fits into a message, with dots where something is missing. What is not printable
// ASCII is written as \xNN, so that a message is a text whatever a file holds.
std::string shortened(std::string_view text);
// shortened(), in quotes.
std::string in_quotes(std::string_view text);

// What nlohmann's parser says, without its own number and with the byte at which it stopped.
std::string json_complaint(const std::exception& error, size_t position);

}  // namespace accelerate::files

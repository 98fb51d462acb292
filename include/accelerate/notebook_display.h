// Pictures, HTML and other rich output in a notebook whose kernel is the one that
// `accelerate kernel install` sets up.
//
//   accelerate::display(accelerate::LineChart("loss").add("training", losses));
//   accelerate::display_image("samples.png");
//
// Elsewhere, in a program on a terminal or in a job, display() prints the plain text of what it is
// given, if there is one. Any rank may call it; no communication. Standard headers only.
#pragma once

#include <concepts>
#include <filesystem>
#include <map>
#include <ostream>
#include <ranges>
#include <sstream>
#include <string>
#include <typeinfo>

#include "accelerate/export.h"

namespace accelerate {

// Forms of one thing by MIME type, such as {"text/plain", "a chart"} and {"image/png", bytes}. The
// notebook shows the richest one it can.
using MimeBundle = std::map<std::string, std::string>;

template <class T>
concept Displayable = requires(const T& value) {
  { value.mime_bundle() } -> std::convertible_to<MimeBundle>;
};

// Whether display() reaches a notebook.
ACCELERATE_EXPORT bool in_notebook();

// Shows `bundle` below the cell, also from workers of notebook_launcher(). With an `id`, what was
// shown under the same one is replaced, wherever it stands. Throws DataError if it cannot be handed
// to the notebook.
ACCELERATE_EXPORT void display(const MimeBundle& bundle, const std::string& id = {});
template <Displayable T>
void display(const T& value, const std::string& id = {}) {
  display(MimeBundle(value.mime_bundle()), id);
}

ACCELERATE_EXPORT void display_html(const std::string& html, const std::string& id = {});
// A PNG, JPEG, GIF or SVG file, by the end of its name. Throws DataError for another one, or if it
// cannot be read.
ACCELERATE_EXPORT void display_image(const std::filesystem::path& file, const std::string& id = {});

namespace detail {

// libtorch prints some of these in ways of its own.
template <class T>
concept GrowingSequence = std::ranges::input_range<const T&> && requires(T& value) {
  value.push_back(*std::ranges::begin(value));
} && !std::convertible_to<const T&, std::string>;

ACCELERATE_EXPORT std::string readable_type_name(const std::type_info& type);

template <class T>
void append_value(std::ostream& text, const T& value) {
  if constexpr (requires { text << value; } && !GrowingSequence<T>) {
    text << value;
  } else if constexpr (std::ranges::input_range<const T&>) {
    const char* separator = "{";
    for (const auto& element : value) {
      text << separator;
      append_value(text, element);
      separator = ", ";
    }
    text << (*separator == '{' ? "{}" : "}");
  } else if constexpr (requires { value.first, value.second; }) {
    text << "(";
    append_value(text, value.first);
    text << ", ";
    append_value(text, value.second);
    text << ")";
  } else {
    text << "(" << readable_type_name(typeid(T)) << ")";
  }
}

// What a cell shows of its last expression, if no semicolon follows it: `(expression),
// kShownValue`. An expression without a value shows nothing.
struct ShownValue {};
inline constexpr ShownValue kShownValue{};

template <class T>
void operator,(const T& value, ShownValue) {
  if constexpr (Displayable<T>) {
    display(value);
  } else if constexpr (!std::derived_from<T, std::ios_base>) {
    std::ostringstream text;
    text << std::boolalpha;
    append_value(text, value);
    display(MimeBundle{{"text/plain", text.str()}});
  }
}

}  // namespace detail
}  // namespace accelerate

#include "data/csv_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>
#include <type_traits>

#include "accelerate/errors.h"

namespace accelerate {
namespace {

std::string_view without_blanks(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// std::from_chars takes no plus sign.
std::string_view without_plus(std::string_view text) {
  const bool has_plus = text.size() > 1 && text[0] == '+' && text[1] != '-' && text[1] != '+';
  return has_plus ? text.substr(1) : text;
}

template <class Number>
bool parse_whole(std::string_view text, Number& value) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ptr != end) return false;
  if (result.ec == std::errc()) return true;
  if constexpr (std::is_floating_point_v<Number>) {
    // Too close to 0 for the type is 0, or the next number to it; too far from it is refused.
    const double nearest = std::strtod(std::string(text).c_str(), nullptr);
    if (result.ec != std::errc::result_out_of_range || std::abs(nearest) >= 1) return false;
    value = static_cast<Number>(nearest);
    return true;
  }
  return false;
}

[[noreturn]] void refuse_csv(const std::string& file, size_t line, const std::string& column,
                             const std::string& what, const std::string& hint) {
  throw DataError(
      {.what = what, .where = file + ", line " + std::to_string(line) + column, .hint = hint});
}

[[noreturn]] void refuse_field(const std::string& file, size_t line, size_t column,
                               std::string_view field, bool wants_integer) {
  constexpr size_t kMostShown = 40;
  std::string shown(field.substr(0, kMostShown));
  for (char& c : shown) c = static_cast<unsigned char>(c) < ' ' ? '?' : c;
  refuse_csv(file, line, ", column " + std::to_string(column + 1),
             field.empty()
                 ? "the field is empty, a number is needed"
                 : "'" + shown + "' is not " + (wants_integer ? "an integer" : "a number"),
             "correct the field, or name the columns that hold numbers (CsvOptions::data)");
}

// How many of the columns hold numbers, up to the first that does not.
template <class Number>
size_t append_numbers(const std::vector<std::string_view>& fields,
                      const std::vector<size_t>& columns, std::vector<Number>& numbers) {
  for (size_t i = 0; i < columns.size(); ++i) {
    Number number{};
    if (!parse_csv_number(fields[columns[i]], number)) return i;
    numbers.push_back(number);
  }
  return columns.size();
}

// Where the closing quote of a field is; a doubled quote is part of the text.
size_t closing_quote(std::string_view line, size_t begin) {
  size_t end = line.find('"', begin);
  while (end != std::string_view::npos && line.substr(end).starts_with("\"\"")) {
    end = line.find('"', end + 2);
  }
  return end;
}

}  // namespace

bool split_csv_line(std::string_view line, char delimiter, std::vector<std::string_view>& fields) {
  fields.clear();
  for (size_t begin = 0;;) {
    std::string_view rest = line.substr(begin);
    const std::string_view blanks = delimiter == ' ' ? "" : delimiter == '\t' ? " " : " \t";
    const size_t first = std::min(rest.find_first_not_of(blanks), rest.size());
    size_t length = 0;  // up to the delimiter or the end of the line
    if (first < rest.size() && rest[first] == '"') {
      const size_t end = closing_quote(rest, first + 1);
      if (end == std::string_view::npos) {
        fields.push_back(rest);
        return false;
      }
      length = std::min(rest.find(delimiter, end), rest.size());
      fields.push_back(without_blanks(rest.substr(first + 1, end - first - 1)));
      if (!without_blanks(rest.substr(end + 1, length - end - 1)).empty()) return false;
    } else {
      length = std::min(rest.find(delimiter), rest.size());
      fields.push_back(without_blanks(rest.substr(0, length)));
    }
    if (length == rest.size()) return true;
    begin += length + 1;
  }
}

void refuse_csv_quote(const std::string& file, size_t line, size_t column) {
  refuse_csv(file, line, ", column " + std::to_string(column + 1),
             "a quote is not closed, or something follows it before the next delimiter",
             "write a quote inside quotes twice; a field cannot go on in the next line");
}

CsvLines::CsvLines(std::string_view text) : rest_(text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
}

bool CsvLines::next() {
  while (!rest_.empty()) {
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++number_;
    if (line_.ends_with('\r')) line_.remove_suffix(1);
    if (!without_blanks(line_).empty()) return true;
  }
  return false;
}

bool parse_csv_number(std::string_view text, float& value) {
  return parse_whole(without_plus(text), value);
}

bool parse_csv_number(std::string_view text, double& value) {
  return parse_whole(without_plus(text), value);
}

bool parse_csv_number(std::string_view text, int64_t& value) {
  if (parse_whole(without_plus(text), value)) return true;
  double number = 0;
  constexpr double kExact = 9007199254740992.0;  // 2^53: beyond it a double may be another integer
  if (!parse_csv_number(text, number) || !(std::abs(number) <= kExact)) return false;
  value = static_cast<int64_t>(number);
  return static_cast<double>(value) == number;
}

size_t parse_csv_rows(CsvLines lines, char delimiter, size_t width, const std::string& file,
                      std::vector<CsvSelection>& selections) {
  // A row has at least two bytes for each field but the last, and an end: no header can make this
  // reserve much more than the text is long.
  const std::string_view text = lines.rest();
  const auto breaks = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  const size_t most_rows = std::min(breaks + 1, text.size() / (2 * width) + 1);
  for (CsvSelection& selection : selections) {
    std::visit([&](auto& numbers) { numbers.reserve(most_rows * selection.columns.size()); },
               selection.numbers);
  }

  size_t rows = 0;
  std::vector<std::string_view> fields;
  while (lines.next()) {
    if (!split_csv_line(lines.line(), delimiter, fields)) {
      refuse_csv_quote(file, lines.number(), fields.size() - 1);
    }
    if (fields.size() != width) {
      refuse_csv(file, lines.number(), "",
                 "the line has " + std::to_string(fields.size()) + " fields, the first one has " +
                     std::to_string(width),
                 "check the delimiter (CsvOptions::delimiter) and the line");
    }
    for (CsvSelection& selection : selections) {
      std::visit(
          [&](auto& numbers) {
            const size_t bad = append_numbers(fields, selection.columns, numbers);
            if (bad == selection.columns.size()) return;
            const size_t column = selection.columns[bad];
            refuse_field(file, lines.number(), column, fields[column],
                         std::holds_alternative<std::vector<int64_t>>(selection.numbers));
          },
          selection.numbers);
    }
    ++rows;
  }
  return rows;
}

}  // namespace accelerate

// Lines and fields of a CSV file, and the numbers in them. No libtorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace accelerate {

// The fields of a line, without its end: each without blanks and quotes around it. `fields` is
// overwritten. False if a quote is not closed or something follows it; its field is then the last.
bool split_csv_line(std::string_view line, char delimiter, std::vector<std::string_view>& fields);

// Throws the DataError for such a quote.
[[noreturn]] void refuse_csv_quote(const std::string& file, size_t line, size_t column);

// Takes the lines of a text one by one, leaving out empty ones, the end of each line and a
// byte-order mark at the beginning.
class CsvLines {
 public:
  explicit CsvLines(std::string_view text);

  // False at the end of the text.
  bool next();
  std::string_view line() const { return line_; }
  // Of the line, from 1.
  size_t number() const { return number_; }
  // What comes after the line.
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
  std::string_view line_;
  size_t number_ = 0;
};

bool parse_csv_number(std::string_view text, float& value);
bool parse_csv_number(std::string_view text, double& value);
// Also takes "3.0" and "2e3": numbers that are integers, however they are written.
bool parse_csv_number(std::string_view text, int64_t& value);

// Numbers of one type, row after row.
using CsvNumbers = std::variant<std::vector<float>, std::vector<double>, std::vector<int64_t>>;

// Columns of a file to be read into one array.
struct CsvSelection {
  std::vector<size_t> columns;
  CsvNumbers numbers;
};

// Appends the selected columns of every line to their arrays; returns the number of rows. Memory
// follows the size of the text. Throws DataError, which names `file`, line and column, for a field
// that is not a number and for a line that has not `width` fields.
size_t parse_csv_rows(CsvLines lines, char delimiter, size_t width, const std::string& file,
                      std::vector<CsvSelection>& selections);

}  // namespace accelerate

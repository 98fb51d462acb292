// Tables for people.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace accelerate {

enum class Align { kLeft, kRight };

// Rows of text in columns as wide as they need to be, two spaces apart, each row indented by
// `indent` spaces; no spaces at the end of a line. The first row is the heading.
class TextTable {
 public:
  explicit TextTable(std::vector<Align> columns, size_t indent = 0);

  // As many cells as there are columns.
  void add(std::vector<std::string> row);
  std::string text() const;

 private:
  std::vector<Align> columns_;
  size_t indent_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace accelerate

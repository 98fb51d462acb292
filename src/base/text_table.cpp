#include "base/text_table.h"

#include <algorithm>
#include <utility>

#include "base/terminal_width.h"

namespace accelerate {

TextTable::TextTable(std::vector<Align> columns, size_t indent)
    : columns_(std::move(columns)), indent_(indent) {}

void TextTable::add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

std::string TextTable::text() const {
  std::vector<size_t> widths(columns_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], columns_of_text(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line(indent_, ' ');
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - columns_of_text(row[i]), ' ');
      line += columns_[i] == Align::kLeft ? row[i] + padding : padding + row[i];
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace accelerate

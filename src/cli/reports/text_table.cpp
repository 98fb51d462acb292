#include "cli/reports/text_table.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/terminal_width.h"

namespace accelerate::cli {
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

std::string size_text(uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  constexpr std::array<const char*, 6> kUnits{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto size = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (size >= 1023.95 && unit + 1 < kUnits.size()) {
    size /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %s", size, kUnits[unit]);
  return text.data();
}

std::string age_text(int64_t seconds) {
  if (seconds <= 0) return "now";
  if (seconds < 60) return std::to_string(seconds) + " s";
  if (seconds < 60 * 60) return std::to_string(seconds / 60) + " min";
  if (seconds < 24 * 60 * 60) return std::to_string(seconds / (60 * 60)) + " h";
  return std::to_string(seconds / (24 * 60 * 60)) + " d";
}

}  // namespace accelerate::cli

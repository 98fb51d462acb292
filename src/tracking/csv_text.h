// Rows of CSV files: RFC 4180, with line feeds alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace accelerate::tracking {

using CsvRow = std::vector<std::string>;

// With the line feed. Fields that need quotes get them.
void append_csv_row(std::string& csv, const CsvRow& row);

// A last row without its line feed is one that a crash cut off: it is left out.
std::vector<CsvRow> parse_csv_rows(std::string_view csv);

}  // namespace accelerate::tracking

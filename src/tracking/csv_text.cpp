#include "tracking/csv_text.h"

#include <utility>

namespace accelerate::tracking {

void append_csv_row(std::string& csv, const CsvRow& row) {
  bool is_first = true;
  for (const std::string& field : row) {
    if (!is_first) csv += ',';
    is_first = false;
    if (field.find_first_of(",\"\r\n") == std::string::npos) {
      csv += field;
      continue;
    }
    csv += '"';
    for (const char c : field) {
      if (c == '"') csv += '"';
      csv += c;
    }
    csv += '"';
  }
  csv += '\n';
}

std::vector<CsvRow> parse_csv_rows(std::string_view csv) {
  std::vector<CsvRow> rows;
  CsvRow row;
  std::string field;
  bool quoted = false;
  for (size_t i = 0; i < csv.size(); ++i) {
    const char c = csv[i];
    if (quoted) {
      if (c != '"') {
        field += c;
      } else if (i + 1 < csv.size() && csv[i + 1] == '"') {
        field += csv[++i];
      } else {
        quoted = false;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',') {
      row.push_back(std::exchange(field, {}));
    } else if (c == '\n') {
      row.push_back(std::exchange(field, {}));
      rows.push_back(std::exchange(row, {}));
    } else {
      field += c;
    }
  }
  return rows;
}

}  // namespace accelerate::tracking

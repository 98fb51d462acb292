#include "accelerate/csv.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "accelerate/errors.h"
#include "data/csv_format.h"
#include "files/durable/mapped_file.h"

namespace accelerate {
namespace {

void check_csv_options(const CsvOptions& options) {
  for (const char forbidden : {'"', '\n', '\r'}) {
    if (options.delimiter != forbidden) continue;
    throw UsageError({.what = "CsvOptions: a quote or a line break cannot be the delimiter"});
  }
}

CsvNumbers numbers_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return std::vector<float>();
    case at::kDouble:
      return std::vector<double>();
    case at::kLong:
      return std::vector<int64_t>();
    default:
      throw UsageError(
          {.what = std::string("CsvOptions: a column cannot be read as ") + toString(type),
           .hint = "use kFloat, kDouble or kLong and convert the tensor"});
  }
}

// The names of the columns, if the first line holds them.
std::optional<std::vector<std::string>> names_in(const std::vector<std::string_view>& first,
                                                 CsvHeader header) {
  const auto is_number = [](std::string_view field) {
    double number = 0;
    return parse_csv_number(field, number);
  };
  const bool is_header =
      header == CsvHeader::kPresent ||
      (header == CsvHeader::kAuto && !std::all_of(first.begin(), first.end(), is_number));
  if (!is_header) return std::nullopt;
  std::vector<std::string> names;
  for (const std::string_view field : first) {
    std::string name(field);
    for (size_t at = 0; (at = name.find("\"\"", at)) != std::string::npos; ++at) name.erase(at, 1);
    names.push_back(std::move(name));
  }
  return names;
}

// "0 and 3": the columns of that name.
std::string columns_named(const std::string& name, const std::vector<std::string>& names) {
  std::vector<size_t> columns;
  for (size_t column = 0; column < names.size(); ++column) {
    if (names[column] == name) columns.push_back(column);
  }
  std::string text;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (i > 0) text += i + 1 == columns.size() ? " and " : ", ";
    text += std::to_string(columns[i]);
  }
  return text;
}

// Columns of one name are a mistake in a header, or a row of data that is taken for one. Columns
// without a name do not count.
void require_distinct(const std::vector<std::string>& names, const std::string& file, size_t line) {
  std::vector<std::string> sorted = names;
  std::sort(sorted.begin(), sorted.end());
  std::string twice;
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i].empty() || sorted[i] != sorted[i - 1]) continue;
    if (i > 1 && sorted[i] == sorted[i - 2]) continue;  // listed already
    twice += (twice.empty() ? "'" : "; '") + sorted[i] + "' (columns " +
             columns_named(sorted[i], names) + ")";
  }
  if (twice.empty()) return;
  throw DataError({.what = "the first line gives the same name to several columns: " + twice,
                   .where = file + ", line " + std::to_string(line),
                   .hint = "if it is a header, set CsvHeader::kPresent and give columns by number; "
                           "if it is a row, set CsvHeader::kAbsent"});
}

size_t column_number(const CsvColumn& column, const std::vector<std::string>& names, size_t width,
                     const std::string& file) {
  if (const auto* number = std::get_if<int64_t>(&column)) {
    if (*number >= 0 && static_cast<size_t>(*number) < width) return static_cast<size_t>(*number);
    throw UsageError({.what = "CsvOptions: there is no column " + std::to_string(*number) +
                              ", the file has " + std::to_string(width),
                      .where = file,
                      .hint = "count columns from 0"});
  }
  const auto& name = std::get<std::string>(column);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end() && std::find(found + 1, names.end(), name) != names.end()) {
    throw UsageError({.what = "CsvOptions: several columns are named '" + name +
                              "': " + columns_named(name, names),
                      .where = file,
                      .hint = "give the column's number"});
  }
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  std::string known;
  for (const std::string& other : names) known += (known.empty() ? "" : ", ") + other;
  throw UsageError({.what = "CsvOptions: there is no column named '" + name + "'",
                    .where = file,
                    .hint = names.empty() ? "the file has no header: give the column's number"
                                          : "the columns are " + known});
}

std::vector<size_t> column_numbers(const std::vector<CsvColumn>& columns,
                                   const std::vector<std::string>& names, size_t width,
                                   const std::string& file, std::vector<bool>& taken) {
  std::vector<size_t> numbers;
  for (const CsvColumn& column : columns) {
    const size_t number = column_number(column, names, width, file);
    if (taken[number]) {
      throw UsageError({.what = "CsvOptions: column " + std::to_string(number) + " is named twice",
                        .where = file});
    }
    taken[number] = true;
    numbers.push_back(number);
  }
  return numbers;
}

at::Tensor to_tensor(CsvNumbers numbers, at::IntArrayRef shape, at::ScalarType type) {
  auto owner = std::make_shared<CsvNumbers>(std::move(numbers));
  void* values = std::visit([](auto& vector) -> void* { return vector.data(); }, *owner);
  if (values == nullptr) return at::empty(shape, type);
  return at::from_blob(
      values, shape, [owner](void*) {}, at::TensorOptions().dtype(type));
}

TensorDataset to_dataset(const std::filesystem::path& path, const CsvOptions& options) {
  if (options.target.empty()) {
    throw UsageError({.what = "CsvDataset needs to know the columns of the target",
                      .where = path.string(),
                      .hint = "name them in CsvOptions::target, or give read_csv(path).data to "
                              "UnlabelledTensorDataset"});
  }
  const CsvTable table = read_csv(path, options);
  return {table.data, table.target};
}

}  // namespace

CsvTable read_csv(const std::filesystem::path& path, const CsvOptions& options) {
  check_csv_options(options);
  std::vector<CsvSelection> selections{{{}, numbers_of(options.data_dtype)},
                                       {{}, numbers_of(options.target_dtype)}};
  const MappedFile file(path, "the CSV file");
  file.begin_scan();
  const CsvLines beginning({reinterpret_cast<const char*>(file.data()), file.size()});
  CsvLines lines = beginning;
  if (!lines.next()) {
    throw DataError({.what = "the CSV file has no line that is not empty", .where = path.string()});
  }
  std::vector<std::string_view> first;
  if (!split_csv_line(lines.line(), options.delimiter, first)) {
    refuse_csv_quote(path.string(), lines.number(), first.size() - 1);
  }
  const size_t width = first.size();
  auto names = names_in(first, options.header);
  if (names && options.header == CsvHeader::kAuto) {
    require_distinct(*names, path.string(), lines.number());
  }

  CsvTable table;
  table.names = names.value_or(std::vector<std::string>());
  std::vector<bool> taken(width, false);
  CsvSelection& data = selections[0];
  CsvSelection& target = selections[1];
  target.columns = column_numbers(options.target, table.names, width, path.string(), taken);
  data.columns = column_numbers(options.data, table.names, width, path.string(), taken);
  if (options.data.empty()) {
    for (size_t column = 0; column < width; ++column) {
      if (!taken[column]) data.columns.push_back(column);
    }
  }
  const auto rows = static_cast<int64_t>(parse_csv_rows(
      names ? lines : beginning, options.delimiter, width, path.string(), selections));

  table.data = to_tensor(std::move(data.numbers), {rows, static_cast<int64_t>(data.columns.size())},
                         options.data_dtype);
  const auto targets = static_cast<int64_t>(target.columns.size());
  if (targets == 1) {
    table.target = to_tensor(std::move(target.numbers), {rows}, options.target_dtype);
  } else if (targets > 1) {
    table.target = to_tensor(std::move(target.numbers), {rows, targets}, options.target_dtype);
  }
  return table;
}

CsvDataset::CsvDataset(const std::filesystem::path& path, const CsvOptions& options)
    : rows_(to_dataset(path, options)) {}

}  // namespace accelerate

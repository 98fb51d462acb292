// Tables of numbers in text files (CSV).
//
//   auto table = accelerate::read_csv("houses.csv", {.target = {"price"}});
//   accelerate::TensorDataset dataset(table.data, table.target);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "accelerate/batch.h"
#include "accelerate/dataset.h"
#include "accelerate/export.h"

namespace accelerate {

// A column by its name in the header, or by its number from 0.
using CsvColumn = std::variant<std::string, int64_t>;

enum class CsvHeader {
  // The first line is a header unless each of its fields is a number. A line that gives two
  // columns the same name may be either: DataError, which asks for one of the other choices.
  kAuto,
  kPresent,  // the first line names the columns
  kAbsent,
};

struct CsvOptions {
  CsvHeader header = CsvHeader::kAuto;
  char delimiter = ',';
  std::vector<CsvColumn> data{};             // in this order; none named: all but the target's
  std::vector<CsvColumn> target{};           // none named: the table has no target
  at::ScalarType data_dtype = at::kFloat;    // kFloat, kDouble or kLong
  at::ScalarType target_dtype = at::kFloat;  // kFloat, kDouble or kLong (classes)
};

struct CsvTable {
  at::Tensor data{};    // [rows, columns]
  at::Tensor target{};  // [rows] for one column, [rows, columns] for several, undefined for none
  std::vector<std::string> names{};  // of all columns of the file; empty without a header
};

// Reads a table of numbers into memory. Blocks until it is read.
//
// Lines end with LF or CRLF; empty ones are skipped; there are no comments. A number may stand in
// double quotes and between blanks, and be "nan" or "inf" unless it is to be an int64. Columns that
// are not asked for may hold anything, but no line break. Throws DataError, which names the file,
// line and column, for a field that is not a number of the wanted type and for a line with more or
// fewer fields than the first; UsageError for columns that do not exist or are named twice, for a
// name that several columns have and for other invalid options.
ACCELERATE_EXPORT CsvTable read_csv(const std::filesystem::path& path,
                                    const CsvOptions& options = {});

// Sample i is (data, target) of row i of a table that read_csv() reads here, into memory.
class ACCELERATE_EXPORT CsvDataset {
 public:
  // Throws as read_csv() does, and UsageError if the options name no target.
  explicit CsvDataset(const std::filesystem::path& path, const CsvOptions& options);

  size_t size() const { return rows_.size(); }
  // Both throw UsageError for an index that is not below size().
  Sample get(size_t index) const { return rows_.get(index); }
  Sample get_batch(c10::ArrayRef<size_t> indices) const { return rows_.get_batch(indices); }

 private:
  TensorDataset rows_;
};

}  // namespace accelerate

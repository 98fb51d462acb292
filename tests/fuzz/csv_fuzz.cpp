// A table is refused with a DataError, or every selected field became one number. The first byte
// chooses the delimiter and the type of the numbers.
#include <string>
#include <string_view>

#include "accelerate/errors.h"
#include "check.h"
#include "data/csv_format.h"

namespace {

accelerate::CsvNumbers numbers_of(uint8_t choice) {
  if (choice % 3 == 0) return std::vector<float>();
  if (choice % 3 == 1) return std::vector<double>();
  return std::vector<int64_t>();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  constexpr std::string_view kDelimiters = ",;\t |";
  const char delimiter = kDelimiters[data[0] % kDelimiters.size()];
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);

  accelerate::CsvLines lines(text);
  if (!lines.next()) return 0;
  std::vector<std::string_view> fields;
  if (!accelerate::split_csv_line(lines.line(), delimiter, fields)) return 0;
  FUZZ_CHECK(!fields.empty() && fields.size() <= lines.line().size() + 1);

  const size_t width = fields.size();
  std::vector<accelerate::CsvSelection> selections{{{}, numbers_of(data[0] / 8)},
                                                   {{width - 1}, numbers_of(data[0] / 64)}};
  for (size_t column = 0; column + 1 < width; ++column) selections[0].columns.push_back(column);
  try {
    const size_t rows = accelerate::parse_csv_rows(lines, delimiter, width, "file", selections);
    for (const auto& selection : selections) {
      const size_t count =
          std::visit([](const auto& numbers) { return numbers.size(); }, selection.numbers);
      FUZZ_CHECK(count == rows * selection.columns.size());
    }
  } catch (const accelerate::DataError& error) {
    FUZZ_CHECK(!error.message().empty() && error.where().starts_with("file, line "));
  }
  return 0;
}

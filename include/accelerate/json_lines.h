// Text files with one record per line, such as JSON lines (.jsonl).
//
//   accelerate::JsonLinesDataset dataset("train.jsonl", [](std::string_view line) {
//     const auto record = nlohmann::json::parse(line);   // or any other parser
//     return accelerate::Sample{encode(record["text"]), label(record["label"])};
//   });
#pragma once

#include <concepts>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "accelerate/export.h"

namespace accelerate {

// The lines of a text file that is mapped into memory: found once, here, at the cost of 8 bytes
// per line; read on demand. Blank lines are skipped; a line has
// neither its LF nor a CR before it. The file must not become shorter meanwhile. Reading is safe
// from any thread; copies are cheap and share the mapping.
class ACCELERATE_EXPORT LineFile {
 public:
  // Reads the file once from its beginning to its end. Throws DataError if it is missing,
  // unreadable or empty.
  explicit LineFile(const std::filesystem::path& path);

  size_t size() const;
  // Lives as long as this object or a copy of it. Throws UsageError for an index that is not below
  // size().
  std::string_view line(size_t index) const;

  // Throws a DataError that names the file and the line's number and says `reason`.
  [[noreturn]] void refuse(size_t index, const char* reason) const;

 private:
  struct ACCELERATE_HIDDEN State;
  std::shared_ptr<const State> state_;
};

// Sample i is parse(line i). `parse` takes a std::string_view that is valid during the call, and is
// called from several threads at once, each time the sample is asked for. Its exceptions become a
// DataError with the file, the number of the line and the exception's text.
template <class Parse>
class JsonLinesDataset {
  static_assert(std::invocable<const Parse&, std::string_view>,
                "the function of JsonLinesDataset must take a std::string_view and be callable "
                "when const, because it is called from several threads");

 public:
  // Throws as LineFile does.
  JsonLinesDataset(const std::filesystem::path& path, Parse parse)
      : lines_(path), parse_(std::make_shared<const Parse>(std::move(parse))) {}

  size_t size() const { return lines_.size(); }
  // Throws UsageError for an index that is not below size().
  auto get(size_t index) const {
    const std::string_view line = lines_.line(index);
    try {
      return std::invoke(*parse_, line);
    } catch (const std::exception& error) {
      lines_.refuse(index, error.what());
    }
  }

 private:
  LineFile lines_;
  std::shared_ptr<const Parse> parse_;
};

}  // namespace accelerate

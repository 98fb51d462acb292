#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "accelerate/detail/dataset_access.h"
#include "accelerate/errors.h"
#include "accelerate/json_lines.h"
#include "files/durable/mapped_file.h"

namespace accelerate {
namespace {

// The line that begins at `begin`, without LF and CR.
std::string_view line_at(std::string_view text, size_t begin) {
  const size_t end = std::min(text.find('\n', begin), text.size());
  std::string_view line = text.substr(begin, end - begin);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

struct LineFile::State {
  explicit State(const std::filesystem::path& path) : file(path, "the file of lines") {
    file.begin_scan();
    const std::string_view all = text();
    for (size_t begin = 0; begin < all.size();) {
      const size_t end = std::min(all.find('\n', begin), all.size());
      if (all.substr(begin, end - begin).find_first_not_of(" \t\r") != std::string_view::npos) {
        begins.push_back(begin);
      }
      begin = end + 1;
    }
    begins.shrink_to_fit();
    file.end_scan();
  }

  std::string_view text() const {
    return {reinterpret_cast<const char*>(file.data()), file.size()};
  }

  MappedFile file;
  std::vector<uint64_t> begins;
};

LineFile::LineFile(const std::filesystem::path& path)
    : state_(std::make_shared<const State>(path)) {}

size_t LineFile::size() const { return state_->begins.size(); }

std::string_view LineFile::line(size_t index) const {
  detail::check_index(index, size());
  return line_at(state_->text(), state_->begins[index]);
}

void LineFile::refuse(size_t index, const char* reason) const {
  const std::string_view before = state_->text().substr(0, state_->begins.at(index));
  const auto number = std::count(before.begin(), before.end(), '\n') + 1;
  throw DataError({.what = std::string("the line cannot be used: ") + reason,
                   .where = state_->file.path().string() + ", line " + std::to_string(number),
                   .hint = "correct the line or the function that reads it"});
}

}  // namespace accelerate

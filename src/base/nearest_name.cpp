#include "base/nearest_name.h"

#include <algorithm>
#include <numeric>

namespace accelerate {
namespace {

// Insertions, deletions and replacements that turn one word into the other.
size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(std::string_view word, const std::vector<std::string>& known,
                         std::optional<size_t> most_edits) {
  std::string nearest;
  // Beyond this it is another word, not a typing error.
  size_t smallest = most_edits ? *most_edits + 1 : word.size() / 3 + 2;
  for (const std::string& name : known) {
    size_t distance = edit_distance(word, name);
    // A word cut short, or the flag without its last part, is meant more often than not.
    if (!most_edits && word.size() >= 4 && name.starts_with(word)) distance = 1;
    if (distance < smallest) {
      smallest = distance;
      nearest = name;
    }
  }
  return nearest;
}

}  // namespace accelerate

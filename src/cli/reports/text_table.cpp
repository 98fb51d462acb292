#include "cli/reports/text_table.h"

#include "base/size_in_words.h"

namespace accelerate::cli {

std::string size_text(uint64_t bytes) { return size_in_words(bytes, 1); }

std::string age_text(int64_t seconds) {
  if (seconds <= 0) return "now";
  if (seconds < 60) return std::to_string(seconds) + " s";
  if (seconds < 60 * 60) return std::to_string(seconds / 60) + " min";
  if (seconds < 24 * 60 * 60) return std::to_string(seconds / (60 * 60)) + " h";
  return std::to_string(seconds / (24 * 60 * 60)) + " d";
}

}  // namespace accelerate::cli

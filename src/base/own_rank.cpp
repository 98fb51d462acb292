#include "base/own_rank.h"

#include <algorithm>

#include "base/environment.h"
#include "base/rank_names.h"

namespace accelerate {

std::string own_rank() {
  for (const RankNames* family : rank_families(environment_variable)) {
    const std::string rank = environment_variable(family->rank).value_or("");
    const bool is_number =
        std::all_of(rank.begin(), rank.end(), [](unsigned char c) { return c >= '0' && c <= '9'; });
    if (is_number && !rank.empty()) return rank;
  }
  return "";
}

}  // namespace accelerate

#include "accelerate/errors.h"

#include <utility>

#include "accelerate/detail/owned_impl.h"

namespace accelerate {

Error::Error(std::string_view kind, ErrorInfo info)
    : std::runtime_error(info.what), kind_(kind), info_(std::move(info)) {
  compose();
}

void Error::set_rank(int rank, int world_size) {
  if (rank_) return;
  rank_ = rank;
  world_size_ = world_size;
  compose();
}

void Error::compose() {
  text_.clear();
  if (rank_) {
    text_ += "[rank " + std::to_string(*rank_) + " of " + std::to_string(world_size_) + "] ";
  }
  text_ += kind_ + ": " + info_.what;
  if (!info_.where.empty()) text_ += "\n  at   " + info_.where;
  if (!info_.hint.empty()) text_ += "\n  try  " + info_.hint;
}

namespace detail {

void refuse_moved_from(const char* owner) {
  throw UsageError({.what = std::string("this ") + owner + " was moved from and holds nothing",
                    .where = owner,
                    .hint = "go on with the one it was moved to"});
}

}  // namespace detail
}  // namespace accelerate

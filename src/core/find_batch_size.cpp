#include "accelerate/find_batch_size.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/detail/stamped.h"
#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "accelerate/memory.h"
#include "comm/agreement.h"

namespace accelerate {
namespace {

// How an attempt ended on a rank that does not fail the search: "" if it fits.
constexpr const char* kTooLarge = "memory";
constexpr const char* kLostPeer = "peer";  // perhaps because that one ran out of memory

// Throws other errors.
std::string outcome_of(const std::exception_ptr& error) {
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (const CommError&) {
    return kLostPeer;
  } catch (const std::exception& exception) {
    if (!should_reduce_batch_size(exception)) throw;
    return kTooLarge;
  }
}

// With the rank, where there are several.
template <class E>
[[noreturn]] void throw_on_rank(const Communicator* ranks, E error) {
  if (ranks != nullptr) detail::stamp(error, *ranks);
  throw error;
}

int64_t nine_tenths(int64_t size) { return static_cast<int64_t>(static_cast<double>(size) * 0.9); }

}  // namespace

bool should_reduce_batch_size(const std::exception& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  constexpr std::array<std::string_view, 4> kSigns{
      " out of memory.", "CUDNN_STATUS_NOT_SUPPORTED.",
      "DefaultCPUAllocator: can't allocate memory",
      "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed"};
  const std::string_view message = error.what();
  return std::ranges::any_of(
      kSigns, [&](std::string_view sign) { return message.find(sign) != std::string_view::npos; });
}

namespace detail {

BatchSizeSearch::BatchSizeSearch(BatchSizeOptions options)
    : options_(std::move(options)), batch_size_(options_.starting_batch_size) {
  if (batch_size_ < 0) {
    throw_on_rank(
        options_.communicator.get(),
        UsageError({.what = "a batch cannot have " + std::to_string(batch_size_) + " samples",
                    .where = "starting_batch_size",
                    .hint = "start with the largest batch that "
                            "might fit"}));
  }
  if (!options_.reduce) options_.reduce = nine_tenths;
}

int64_t BatchSizeSearch::next() {
  if (batch_size_ <= 0) {
    throw_on_rank(options_.communicator.get(),
                  UsageError({.what = "No executable batch size found, reached zero.",
                              .where = "find_executable_batch_size",
                              .hint = "a smaller model, lower precision or more memory"}));
  }
  clear_device_cache();
  return batch_size_;
}

bool BatchSizeSearch::succeeded(const std::exception_ptr& error) {
  Communicator* ranks = options_.communicator.get();
  const auto blame = [&](int64_t rank) {
    throw_on_rank(ranks,
                  CommError({.what = "rank " + std::to_string(rank) + " failed with batch size " +
                                     std::to_string(batch_size_),
                             .where = "find_executable_batch_size",
                             .hint = "see the error of that rank"}));
  };
  const auto own = [&] { return outcome_of(error); };
  const std::vector<std::string> outcomes =
      ranks == nullptr ? std::vector<std::string>{own()}
                       : comm::gather_together(
                             *ranks, own,
                             {.keep_own = true,
                              .retell = [&](const Communicator&, const comm::RankFailure& failure) {
                                blame(failure.rank);
                              }});
  if (std::ranges::find(outcomes, kTooLarge) == outcomes.end()) {
    const auto lost = std::ranges::find(outcomes, kLostPeer);
    if (lost == outcomes.end()) return true;
    // A process alone has only its own outcome, which is that of an error.
    if (error || ranks == nullptr) std::rethrow_exception(error);
    blame(ranks->global_ranks()[static_cast<size_t>(lost - outcomes.begin())]);
  }
  const int64_t smaller = options_.reduce(batch_size_);
  if (smaller >= batch_size_) {
    throw_on_rank(options_.communicator.get(),
                  UsageError({.what = "the batch size after " + std::to_string(batch_size_) +
                                      " must be smaller, not " + std::to_string(smaller),
                              .where = "find_executable_batch_size",
                              .hint = "correct BatchSizeOptions::reduce"}));
  }
  log(LogLevel::kInfo, "batch size " + std::to_string(batch_size_) +
                           " does not fit into memory, trying " + std::to_string(smaller));
  batch_size_ = smaller;
  return false;
}

}  // namespace detail
}  // namespace accelerate

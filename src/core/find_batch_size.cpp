#include "accelerate/find_batch_size.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "accelerate/memory.h"

namespace accelerate {
namespace {

// How an attempt ended on one rank; what counts for all is the highest.
enum class Outcome : int64_t { kFits, kLostPeer, kOutOfMemory, kFailed };

Outcome outcome_of(const std::exception_ptr& error) {
  if (!error) return Outcome::kFits;
  try {
    std::rethrow_exception(error);
  } catch (const CommError&) {
    return Outcome::kLostPeer;
  } catch (const std::exception& exception) {
    return should_reduce_batch_size(exception) ? Outcome::kOutOfMemory : Outcome::kFailed;
  } catch (...) {
    return Outcome::kFailed;
  }
}

std::vector<Outcome> on_all_ranks(Outcome outcome, Communicator* communicator) {
  if (communicator == nullptr) return {outcome};
  std::vector<Outcome> outcomes;
  for (const at::Tensor& each :
       communicator->all_gather(at::tensor({static_cast<int64_t>(outcome)}))) {
    outcomes.push_back(static_cast<Outcome>(each.item<int64_t>()));
  }
  return outcomes;
}

// With the rank, where there are several.
template <class E>
[[noreturn]] void throw_on_rank(const Communicator* ranks, E error) {
  if (ranks != nullptr) error.set_rank(ranks->rank(), ranks->world_size());
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
  const auto outcomes = on_all_ranks(outcome_of(error), options_.communicator.get());
  const auto worst = std::ranges::max_element(outcomes);
  if (*worst == Outcome::kFits) return true;
  if (*worst != Outcome::kOutOfMemory) {
    if (error && outcome_of(error) == *worst) std::rethrow_exception(error);
    throw_on_rank(options_.communicator.get(),
                  CommError({.what = "rank " + std::to_string(worst - outcomes.begin()) +
                                     " failed with batch size " + std::to_string(batch_size_),
                             .where = "find_executable_batch_size",
                             .hint = "see the error of that rank"}));
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

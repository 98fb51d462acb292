// Many texts at once.
#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "accelerate/errors.h"
#include "accelerate/tokenizers.h"

namespace accelerate {
namespace {

// Less text than this is not worth a thread.
constexpr size_t kBytesForThread = 1 << 14;
// Texts that a thread takes at once.
constexpr size_t kTake = 16;

size_t thread_count(std::span<const TextPair> texts, int wanted) {
  if (wanted < 0) {
    throw UsageError({.what = "expected a number of threads, got " + std::to_string(wanted),
                      .where = "BatchOptions.threads"});
  }
  size_t bytes = 0;
  for (const TextPair& text : texts) {
    bytes += text.text.size() + text.pair.value_or("").size();
  }
  const size_t most = wanted > 0 ? static_cast<size_t>(wanted)
                                 : std::max<size_t>(1, std::thread::hardware_concurrency());
  return std::min({most, (texts.size() + kTake - 1) / kTake, bytes / kBytesForThread + 1});
}

}  // namespace

std::vector<Encoding> Tokenizer::encode_batch(std::span<const TextPair> texts,
                                              const BatchOptions& options) const {
  std::vector<Encoding> encodings(texts.size());
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  size_t error_at = texts.size();  // the first text that failed: which one does not depend on luck
  const auto work = [&] {
    while (true) {
      const size_t begin = next.fetch_add(kTake);
      const size_t end = std::min(begin + kTake, texts.size());
      for (size_t i = begin; i < end; ++i) {
        try {
          encodings[i] = encode_pair(texts[i], options.encode, false);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (i < error_at) {
            error_at = i;
            error = std::current_exception();
          }
          // What comes later does not matter any more; what came before goes on.
          next = texts.size();
          return;
        }
      }
      if (end >= texts.size()) return;
    }
  };
  const size_t threads = thread_count(texts, options.threads);
  {
    std::vector<std::jthread> helpers;
    for (size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
  pad_together(encodings, options.encode);
  return encodings;
}

}  // namespace accelerate

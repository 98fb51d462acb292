// Data that comes in sequence, of unknown or unlimited length: files read line by line,
// sockets, generators, any C++ range.
//
//   auto numbers = accelerate::stream(std::views::iota(0, 1000));
//   auto lines = accelerate::stream([path](int64_t epoch) { return LineReader(path, epoch); });
//   auto loader = accelerate::data_loader(lines, {.batch_size = 32});
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ranges>
#include <type_traits>
#include <utility>

#include "accelerate/export.h"

namespace accelerate {

namespace detail {

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

// A function that gives one element at each call and nothing at the end.
template <class F>
concept NextFunction = std::invocable<F&> && is_optional<std::invoke_result_t<F&>>;

// Throws DataError: a range that can be read once was asked for a second pass.
[[noreturn]] ACCELERATE_EXPORT void throw_read_twice();

// Walks `range`, which lives as long as the returned function.
template <class Range>
auto walk_range(std::shared_ptr<Range> range) {
  using Element = std::ranges::range_value_t<Range>;
  struct Walk {
    std::shared_ptr<Range> range;
    std::ranges::iterator_t<Range> at;
    std::ranges::sentinel_t<Range> end;
    bool fresh = true;  // a range that reads ahead must not be advanced before it is asked to
  };
  auto walk =
      std::make_shared<Walk>(Walk{range, std::ranges::begin(*range), std::ranges::end(*range)});
  return [walk]() -> std::optional<Element> {
    if (!walk->fresh && walk->at != walk->end) ++walk->at;
    walk->fresh = false;
    if (walk->at == walk->end) return std::nullopt;
    return std::optional<Element>(*walk->at);
  };
}

// Turns what the user gave into a function of the epoch that opens a pass.
template <class Opened>
auto next_of(Opened&& opened) {
  using Given = std::remove_cvref_t<Opened>;
  if constexpr (NextFunction<Given>) {
    // On the heap: it may be a thing that can only be moved, std::function copies.
    auto next = std::make_shared<Given>(std::forward<Opened>(opened));
    return [next] { return (*next)(); };
  } else {
    static_assert(std::ranges::input_range<Given>,
                  "a stream is a range, or a function that returns a range, a std::optional or a "
                  "function that returns a std::optional");
    return walk_range(std::make_shared<Given>(std::forward<Opened>(opened)));
  }
}

template <class Source>
auto opener_of(Source&& source) {
  using Given = std::remove_cvref_t<Source>;
  auto kept = std::make_shared<Given>(std::forward<Source>(source));
  if constexpr (NextFunction<Given>) {
    return [kept](int64_t) { return [kept] { return (*kept)(); }; };
  } else if constexpr (std::ranges::forward_range<Given>) {
    return [kept](int64_t) { return walk_range(kept); };
  } else if constexpr (std::ranges::input_range<Given>) {
    auto read = std::make_shared<bool>(false);
    return [kept, read](int64_t) {
      if (std::exchange(*read, true)) throw_read_twice();
      return walk_range(kept);
    };
  } else if constexpr (std::invocable<Given&, int64_t>) {
    return [kept](int64_t epoch) { return next_of((*kept)(epoch)); };
  } else {
    static_assert(std::invocable<Given&>,
                  "a stream is a range, or a function that returns a range, a std::optional or a "
                  "function that returns a std::optional");
    return [kept](int64_t) { return next_of((*kept)()); };
  }
}

template <class Source>
using StreamElement = typename std::invoke_result_t<
    std::invoke_result_t<decltype(opener_of(std::declval<Source>())), int64_t>>::value_type;

template <class Source>
std::optional<int64_t> size_if_known(const Source& source) {
  if constexpr (std::ranges::sized_range<const Source>) {
    return static_cast<int64_t>(std::ranges::size(source));
  } else {
    return std::nullopt;
  }
}

}  // namespace detail

// A source of samples of type T that is reopened for each pass. Copies share the source. Read by
// one thread at a time, which may be a worker's.
template <class T>
class Stream {
 public:
  using Element = T;
  using Next = std::function<std::optional<T>()>;

  // `open` starts pass `epoch`: the function that it returns gives one sample at each call, nothing
  // at the end, and is not called again after that. `size` is the number of samples of a pass.
  explicit Stream(std::function<Next(int64_t epoch)> open,
                  std::optional<int64_t> size = std::nullopt)
      : open_(std::move(open)), size_(size) {}

  Next open(int64_t epoch) const { return open_(epoch); }
  const std::optional<int64_t>& size() const { return size_; }

 private:
  std::function<Next(int64_t epoch)> open_;
  std::optional<int64_t> size_;
};

// The same of whole batches: what a loader of another library yields. Rank 0 reads them and sends
// every rank its part, once the loader is prepared.
template <class T>
class BatchStream : public Stream<T> {
 public:
  using Stream<T>::Stream;
};

// A stream of what `source` gives, which is moved or copied in:
//   a range                        walked from its beginning in each pass; one that can be walked
//                                  only once serves a single pass, then DataError
//   a function -> std::optional    called for each sample; nothing ends the pass
//   a function -> a range or a function of the kind above, with or without an int64_t parameter for
//                                  the epoch: called once per pass
// `size`: samples of a pass, if the source does not know.
template <class Source>
auto stream(Source&& source, std::optional<int64_t> size = std::nullopt) {
  if (!size) size = detail::size_if_known(source);
  return Stream<detail::StreamElement<Source>>(detail::opener_of(std::forward<Source>(source)),
                                               size);
}

template <class Source>
auto batch_stream(Source&& source, std::optional<int64_t> size = std::nullopt) {
  if (!size) size = detail::size_if_known(source);
  return BatchStream<detail::StreamElement<Source>>(detail::opener_of(std::forward<Source>(source)),
                                                    size);
}

}  // namespace accelerate

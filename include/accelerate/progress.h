// A progress bar around any range, or one that is updated by hand, on the local main process only.
//
//   auto bar = accelerate::progress(loader, accelerator, {.description = "epoch 1"});
//   for (auto& batch : bar) bar.set_postfix("loss 0.312");
//
//   accelerate::ProgressBar bar(file_size, accelerator, {.description = "download"});
//   while (size_t bytes = receive()) bar.update(bytes);
//
// On a terminal the bar is redrawn in place about ten times a second; elsewhere (a file, a pipe)
// each pass leaves exactly one line when it ends. A loop that is left early, also by an exception,
// shows how far it came. Bars that run at the same time, such as one of batches inside one of
// epochs, are drawn below each other; one that ends moves above those that still run, as do log
// lines. Standard headers only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <iterator>
#include <memory>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>

#include "accelerate/export.h"

namespace accelerate {

struct ProgressOptions {
  std::string description{};
  std::ostream* stream = nullptr;  // where it is drawn; standard error if null, the only one that
                                   // can be a terminal
  bool leave = true;               // false: nothing stays when the pass ends, nor a line in a file
  // If it is not a terminal, a line is written at least this often while the bar moves.
  std::chrono::milliseconds line_interval = std::chrono::seconds(30);
};

namespace detail {

// What one drawing shows.
struct ProgressState {
  std::string description{};
  std::string postfix{};
  int64_t done = 0;
  int64_t total = 0;  // below 0: unknown
  double elapsed_seconds = 0;
};

// "03:07", "1:02:03".
ACCELERATE_EXPORT std::string format_duration(double seconds);
// "62.13it/s", "2.50s/it" below one a second, "?it/s" while nothing is done.
ACCELERATE_EXPORT std::string format_rate(int64_t done, double elapsed_seconds);
// "epoch 1:  42%|####      | 197/469 [00:03<00:04, 62.13it/s, loss 0.312]", at most `columns`
// characters wide: the bar shrinks first, then the end is cut. `blocks` draws with Unicode eighths.
// Without a total "epoch 1: 197it [00:03, 62.13it/s, loss 0.312]".
ACCELERATE_EXPORT std::string format_bar(const ProgressState& state, int columns, bool blocks);
// "epoch 1: 469/469 in 00:07, 62.13it/s, loss 0.312".
ACCELERATE_EXPORT std::string format_line(const ProgressState& state);

// Draws one bar. A disabled one does nothing. Not thread-safe, but several may draw at once.
class ACCELERATE_EXPORT DrawnBar {
 public:
  DrawnBar(bool enabled, ProgressOptions options);
  ~DrawnBar();
  DrawnBar(const DrawnBar&) = delete;
  DrawnBar& operator=(const DrawnBar&) = delete;

  void start(int64_t total);
  // `count` more are done. Draws if the last drawing is old enough: costs a look at the clock,
  // about 25 ns.
  void advance(int64_t count = 1);
  // Ends the pass that start() began.
  void finish();
  void set_description(std::string description);
  void set_postfix(std::string postfix);

 private:
  struct ACCELERATE_HIDDEN Drawing;
  std::unique_ptr<Drawing> drawing_;  // null: disabled
};

// How many elements `range` has, -1 if unknown.
template <class Range>
int64_t total_of(Range& range) {
  if constexpr (requires { range.size_if_known(); }) {
    return range.size_if_known().value_or(-1);
  } else if constexpr (std::ranges::sized_range<Range>) {
    return static_cast<int64_t>(std::ranges::size(range));
  } else {
    return -1;
  }
}

// Ends the pass of a bar when the loop is left, however it is left.
class ProgressPass {
 public:
  ProgressPass(DrawnBar* bar, int64_t total) : bar_(bar) { bar_->start(total); }
  ProgressPass(ProgressPass&& other) noexcept : bar_(std::exchange(other.bar_, nullptr)) {}
  ProgressPass& operator=(ProgressPass&& other) noexcept {
    std::swap(bar_, other.bar_);
    return *this;
  }
  ~ProgressPass() { finish(); }

  void advance(int64_t count = 1) {
    if (bar_ != nullptr) bar_->advance(count);
  }
  void finish() {
    if (bar_ != nullptr) std::exchange(bar_, nullptr)->finish();
  }

 private:
  DrawnBar* bar_;
};

}  // namespace detail

// The range that progress() returns: iterates `Range` (a reference for an lvalue, owned for an
// rvalue) and counts. One pass at a time; it must outlive its iterators.
template <class Range>
class Progress {
 public:
  class Iterator;

  Progress(Range&& range, bool enabled, ProgressOptions options)
      : range_(std::forward<Range>(range)),
        bar_(std::make_unique<detail::DrawnBar>(enabled, std::move(options))) {}

  // Begins a pass of the inner range and of the bar. Throws what the inner begin() throws.
  Iterator begin() { return Iterator(range_, bar_.get()); }
  std::default_sentinel_t end() const { return {}; }
  auto size() requires std::ranges::sized_range<Range> { return std::ranges::size(range_); }

  // Text shown at the end of the bar from the next drawing on. Costs nothing where none is drawn.
  void set_postfix(std::string postfix) { bar_->set_postfix(std::move(postfix)); }
  void set_description(std::string description) { bar_->set_description(std::move(description)); }

 private:
  Range range_;
  std::unique_ptr<detail::DrawnBar> bar_;
};

// Move-only input iterator.
template <class Range>
class Progress<Range>::Iterator {
  using Inner = std::remove_reference_t<Range>;

 public:
  using iterator_concept = std::input_iterator_tag;
  using value_type = std::ranges::range_value_t<Inner>;
  using difference_type = std::ptrdiff_t;

  decltype(auto) operator*() const { return *inner_; }

  Iterator& operator++() {
    ++inner_;
    pass_.advance();
    finish_at_end();
    return *this;
  }
  void operator++(int) { ++*this; }

  bool operator==(std::default_sentinel_t) const { return inner_ == end_; }

 private:
  friend class Progress;

  // The bar starts before the first element is fetched, so that its time is counted.
  Iterator(Inner& range, detail::DrawnBar* bar)
      : pass_(bar, detail::total_of(range)),
        inner_(std::ranges::begin(range)),
        end_(std::ranges::end(range)) {
    finish_at_end();
  }

  void finish_at_end() {
    if (inner_ == end_) pass_.finish();
  }

  detail::ProgressPass pass_;
  std::ranges::iterator_t<Inner> inner_;
  std::ranges::sentinel_t<Inner> end_;
};

// A bar that is updated by hand: begins when it is created and ends with close() or its
// destruction. Drawn only where accelerator.is_local_main_process() holds; every rank may make one,
// no communication. Not thread-safe.
class ProgressBar {
 public:
  static constexpr int64_t kUnknownTotal = -1;

  template <class Accelerator>
  ProgressBar(int64_t total, const Accelerator& accelerator, ProgressOptions options = {})
      : bar_(std::make_unique<detail::DrawnBar>(accelerator.is_local_main_process(),
                                                std::move(options))),
        pass_(bar_.get(), total) {}
  ProgressBar(ProgressBar&&) noexcept = default;
  ProgressBar& operator=(ProgressBar&&) = delete;

  // `count` more are done; below 0 takes some back. Does nothing after close().
  void update(int64_t count = 1) { pass_.advance(count); }
  // Texts before and behind the bar, from the next drawing on.
  void set_description(std::string description) { bar_->set_description(std::move(description)); }
  void set_postfix(std::string postfix) { bar_->set_postfix(std::move(postfix)); }
  // Draws the final state. A second call does nothing.
  void close() { pass_.finish(); }

 private:
  std::unique_ptr<detail::DrawnBar> bar_;
  detail::ProgressPass pass_;  // last: ends before the bar
};

// Wraps `range` (anything that can be iterated) in a progress bar that is drawn only
// where accelerator.is_local_main_process() holds. Every rank may call it; no communication.
template <class Range, class Accelerator>
requires std::ranges::input_range<Range> Progress<Range> progress(Range&& range,
                                                                  const Accelerator& accelerator,
                                                                  ProgressOptions options = {}) {
  return Progress<Range>(std::forward<Range>(range), accelerator.is_local_main_process(),
                         std::move(options));
}

}  // namespace accelerate

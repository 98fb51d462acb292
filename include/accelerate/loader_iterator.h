// One pass over a loader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "accelerate/batch.h"
#include "accelerate/detail/feed.h"
#include "accelerate/detail/loader_control.h"
#include "accelerate/detail/open_passes.h"
#include "accelerate/errors.h"

namespace accelerate {

// What DataLoader::begin() returns. Move-only input iterator. Keeps the data alive; the loader
// itself may be destroyed. Destroying it ends the pass and its workers.
template <class Value>
class LoaderIterator {
 public:
  using iterator_concept = std::input_iterator_tag;
  using value_type = Batch<Value>;
  using difference_type = std::ptrdiff_t;

  // Loads the first batch of the pass that `start(place)` begins; it says where that is. `rank` and
  // `world_size` are for errors. Internal.
  template <class Start>
  LoaderIterator(std::shared_ptr<detail::LoaderControl> control, int rank, int world_size,
                 Start start)
      : control_(std::move(control)),
        rank_(rank),
        world_size_(world_size),
        pass_(control_->passes()),
        batch_(std::make_unique<Batch<Value>>()) {
    stamped([&] { feed_ = start(place_); });
    number_ = control_->begin(place_);
    load();
  }
  LoaderIterator(LoaderIterator&&) noexcept = default;
  LoaderIterator& operator=(LoaderIterator&& other) noexcept {
    if (this != &other) {
      end();
      control_ = std::move(other.control_);
      place_ = other.place_;
      number_ = other.number_;
      rank_ = other.rank_;
      world_size_ = other.world_size_;
      feed_ = std::move(other.feed_);
      pass_ = std::move(other.pass_);
      batch_ = std::move(other.batch_);
    }
    return *this;
  }
  ~LoaderIterator() { end(); }

  Batch<Value>& operator*() const { return *batch_; }
  Batch<Value>* operator->() const { return batch_.get(); }

  LoaderIterator& operator++() {
    load();
    return *this;
  }
  void operator++(int) { ++*this; }

  bool operator==(std::default_sentinel_t) const { return feed_ == nullptr; }

 private:
  void load() {
    if (feed_ == nullptr) return;
    detail::Produced<Value> produced;
    bool more = false;
    stamped([&] {
      const auto until_it_is_there = pass_->before_batch();
      more = feed_->next(produced);
    });
    if (!more) {
      control_->finished(number_);
      stamped([&] { pass_->at_end(); });
      end();
      return;
    }
    control_->delivered(number_, produced.position);
    pass_->deliver(produced.info);
    *batch_ = Batch<Value>(std::move(produced.value), produced.info);
  }

  // An exception ends the pass; an error of the library carries the rank.
  template <class Step>
  void stamped(Step step) {
    try {
      step();
    } catch (Error& error) {
      end();
      error.set_rank(rank_, world_size_);
      throw;
    } catch (...) {
      end();
      throw;
    }
  }

  void end() {
    feed_.reset();
    pass_.reset();
    if (control_) control_->left(number_);
  }

  std::shared_ptr<detail::LoaderControl> control_;
  detail::LoaderControl::Place place_;
  int64_t number_ = -1;  // of the pass, for `control_`
  int rank_;
  int world_size_;
  std::unique_ptr<detail::Feed<Value>> feed_;
  std::optional<detail::OpenPass> pass_;
  std::unique_ptr<Batch<Value>> batch_;
};

}  // namespace accelerate

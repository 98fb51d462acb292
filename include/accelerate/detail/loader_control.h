// What all handles of one loader share: where it stands. Internal: users do not call it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "accelerate/detail/open_passes.h"
#include "accelerate/export.h"
#include "accelerate/loader_options.h"

namespace accelerate::detail {

// Any thread. Passes may be nested: each has a number and a place of its own.
class ACCELERATE_EXPORT LoaderControl {
 public:
  // Where the next pass begins, and by which rules.
  struct Start {
    int64_t epoch = 0;
    int64_t position = 0;
    std::optional<uint64_t> seed{};      // from a loaded state
    std::optional<bool> even_batches{};  // instead of what the loader was prepared with
  };
  Start start() const;

  int64_t epoch() const;
  // Forgets where an interrupted pass of another epoch stood.
  void set_epoch(int64_t epoch);
  void set_even_batches(std::optional<bool> even);

  // Where the loops over this loader are counted: by itself, or together with the other loaders of
  // an accelerator.
  std::shared_ptr<OpenPasses> passes() const;
  void set_passes(std::shared_ptr<OpenPasses> passes);

  // Where a pass stands.
  struct Place {
    int64_t epoch = 0;
    int64_t position = 0;
    uint64_t seed = 0;  // that the pass really uses
  };
  // A pass begins; returns its number.
  int64_t begin(const Place& place);
  // Its loop was given a batch, and has now used up `position`.
  void delivered(int64_t pass, int64_t position);
  // It came to its end, or was left before.
  void finished(int64_t pass);
  void left(int64_t pass);

  // That of the innermost loop; else that of the loop that was left last, until another begins;
  // nothing between passes.
  std::optional<Place> place() const;
  void load(const LoaderState& state);

 private:
  struct OpenPlace {
    int64_t pass = 0;
    Place place{};
  };
  std::vector<OpenPlace>::iterator find(int64_t pass);

  mutable std::mutex mutex_;
  int64_t epoch_ = 0;
  std::optional<uint64_t> seed_;
  std::optional<bool> even_batches_;
  int64_t resume_position_ = 0;  // of the pass epoch_
  std::shared_ptr<OpenPasses> passes_ = std::make_shared<OpenPasses>();
  int64_t begun_ = 0;
  std::vector<OpenPlace> open_;
  std::optional<Place> left_;
};

}  // namespace accelerate::detail

// What all handles of one loader share: where it stands. Nothing here is called by users.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "accelerate/batch.h"
#include "accelerate/detail/open_passes.h"
#include "accelerate/loader_options.h"

namespace accelerate::detail {

// Any thread.
class LoaderControl {
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

  // A batch of pass `info.epoch` was handed to the loop, which has now used up `position`.
  void delivered(const BatchInfo& info, int64_t position);
  // A pass came to its end.
  void finished();

  // Where the loops over this loader are counted: by itself, or together with the other loaders of
  // an accelerator.
  std::shared_ptr<OpenPasses> passes() const;
  void set_passes(std::shared_ptr<OpenPasses> passes);

  // Epoch and position of state(), and the other way round.
  LoaderState state() const;
  void load(const LoaderState& state);

 private:
  mutable std::mutex mutex_;
  int64_t epoch_ = 0;
  std::optional<uint64_t> seed_;
  std::optional<bool> even_batches_;
  int64_t resume_position_ = 0;  // of the pass epoch_
  std::shared_ptr<OpenPasses> passes_ = std::make_shared<OpenPasses>();
  // Of the pass that handed out a batch last.
  int64_t seen_epoch_ = 0;
  int64_t seen_position_ = 0;
};

}  // namespace accelerate::detail

// Loaders of torch::data as streams of batches. Nothing here is called by users.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "accelerate/export.h"
#include "accelerate/stream.h"

namespace accelerate::detail {

// Throws UsageError: a loop over a loader of torch::data goes on after another one was begun.
[[noreturn]] ACCELERATE_EXPORT void throw_overtaken_pass();

// Opens passes over a loader of torch::data. One pass at a time: torch's loader has one place.
template <class Loader>
class TorchLoaderPasses {
 public:
  using Batch = typename Loader::BatchType;

  explicit TorchLoaderPasses(std::shared_ptr<Loader> loader)
      : state_(new State{std::move(loader)}) {}

  std::function<std::optional<Batch>()> operator()(int64_t) const {
    finish_the_pass_before();
    state_->at.emplace(state_->loader->begin());
    return
        [state = state_, pass = ++state_->passes, fresh = true]() mutable -> std::optional<Batch> {
          if (pass != state->passes) throw_overtaken_pass();
          if (!std::exchange(fresh, false)) ++*state->at;
          if (*state->at == state->loader->end()) {
            state->at.reset();
            return std::nullopt;
          }
          return std::move(**state->at);
        };
  }

 private:
  struct State {
    std::shared_ptr<Loader> loader;
    int64_t passes = 0;
    std::optional<std::decay_t<decltype(std::declval<Loader&>().begin())>> at{};
  };

  // torch's loader cannot begin anew before its batches have all been taken.
  void finish_the_pass_before() const {
    if (!state_->at) return;
    while (*state_->at != state_->loader->end()) ++*state_->at;
    state_->at.reset();
  }

  std::shared_ptr<State> state_;
};

template <class Loader>
auto batches_of_torch(std::shared_ptr<Loader> loader) {
  using Batch = typename Loader::BatchType;
  return BatchStream<Batch>(TorchLoaderPasses<Loader>(std::move(loader)));
}

}  // namespace accelerate::detail

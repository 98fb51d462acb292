// A prepared loader as an accelerator remembers it: without keeping it alive. Internal: users
// do not call it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "accelerate/data_loader.h"
#include "accelerate/detail/loader_control.h"
#include "accelerate/export.h"
#include "accelerate/loader_options.h"

namespace accelerate::detail {

// Any thread.
class ACCELERATE_EXPORT FollowedLoader {
 public:
  virtual ~FollowedLoader() = default;
  // Null once the last handle and the last loop are gone; the calls below then have no effect.
  virtual std::shared_ptr<LoaderControl> control() const = 0;
  virtual std::optional<LoaderState> state() const = 0;
  // Throw DataError if it is the state of other data; check() changes nothing.
  virtual void check(const LoaderState& state) const = 0;
  virtual void load(const LoaderState& state) const = 0;
};

template <class Loader>
class WeakLoader final : public FollowedLoader {
 public:
  explicit WeakLoader(const Loader& loader) : find_(loader.weak_handle()) {}

  std::shared_ptr<LoaderControl> control() const override {
    const auto loader = find_();
    return loader ? loader->control() : nullptr;
  }
  std::optional<LoaderState> state() const override {
    const auto loader = find_();
    return loader ? std::optional(loader->state_dict()) : std::nullopt;
  }
  void check(const LoaderState& state) const override {
    if (const auto loader = find_()) loader->check_state_dict(state);
  }
  void load(const LoaderState& state) const override {
    if (auto loader = find_()) loader->load_state_dict(state);
  }

 private:
  std::function<std::optional<Loader>()> find_;
};

template <class Loader>
std::unique_ptr<FollowedLoader> follow(const Loader& loader) {
  return std::make_unique<WeakLoader<Loader>>(loader);
}

}  // namespace accelerate::detail

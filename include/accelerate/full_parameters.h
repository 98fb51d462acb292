// Parameters that are whole for a scope, wherever they live.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "accelerate/export.h"

namespace accelerate {

struct FullParametersOptions {
  // What is written to parameters while they are whole is kept. Writing without it is a UsageError
  // where they live in shards.
  bool write_back = false;
  // With write_back: the rank whose values count, which keeps a copy of the parameters that it does
  // not have in shards while the scope lives. Unset: all ranks write the same.
  std::optional<int> from_rank{};
};

// While it lives, the parameters of a model have memory that may be read through pointers, and
// operations on them exchange nothing, so a rank may work with them alone. Made by
// Accelerator::full_parameters(), which is collective; ended by the thread that made it. No update
// may be made in between.
class [[nodiscard]] ACCELERATE_EXPORT FullParameters {
 public:
  // How a strategy holds them.
  class ACCELERATE_EXPORT Held {
   public:
    virtual ~Held() = default;
    // See FullParameters::end().
    virtual void end() = 0;
  };

  explicit FullParameters(std::unique_ptr<Held> held) : held_(std::move(held)) {}
  FullParameters(FullParameters&&) noexcept = default;
  FullParameters& operator=(FullParameters&&) = delete;

  // Ends the scope and keeps what was written. Collective where there is a from_rank. The
  // destructor ends it too, but exchanges nothing: with a from_rank, what was written is lost then.
  void end() {
    if (const auto held = std::exchange(held_, nullptr)) held->end();
  }

 private:
  std::unique_ptr<Held> held_;
};

}  // namespace accelerate

// Parameters that are brought into memory together.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compat/touched.h"
#include "residency/touch/shard_gatherer.h"
#include "residency/touch/unit_layout.h"

namespace accelerate::residency {

struct UnitParameters {
  std::string name{};
  // Dense floating-point tensors of one dtype on one device, each once, with their names.
  std::vector<at::Tensor> parameters{};
  std::vector<std::string> names{};
};

// One unit: the shard of this rank for good, the whole row while it is needed. Not synchronised.
class TouchUnit {
 public:
  // Takes the elements of this rank from the parameters, which lose their memory; zeros where they
  // had none. `whole_dtype` is what the parameters have from here on; the shard keeps theirs.
  TouchUnit(UnitParameters parameters, size_t number, int rank, int world_size,
            at::ScalarType whole_dtype, c10::Device device,
            const std::weak_ptr<compat::TouchKeeper>& keeper);

  const UnitParameters& parameters() const { return parameters_; }
  const std::string& name() const { return parameters_.name; }
  const UnitLayout& layout() const { return layout_; }
  const at::Tensor& shard() const { return shard_; }
  const at::Tensor& piece(size_t index) const { return pieces_[index]; }
  int64_t begin_of_piece(size_t index) const {
    return layout_.piece(index, rank_).value_or(UnitLayout::Piece{}).begin;
  }
  int64_t whole_numel() const { return layout_.whole_numel(); }

  // See TouchedUnits.
  void require_in_place(const char* where) const;

  enum class State { kInPieces, kComing, kWhole };
  State state() const { return state_; }

  // From kInPieces to kComing: collective.
  void begin_gather(ShardGatherer& gatherer);
  // From kComing to kWhole. Where it throws the unit is in pieces.
  void finish_gather();
  // To kInPieces, from any state; a gather that is under way is waited for. What that throws is of
  // no interest to anyone any more.
  void release() noexcept;
  // The same without a wait: for the end, when other ranks may never come to that gather.
  void abandon() noexcept;
  // The unit is whole and something is about to use it, or the memory of a cast: orders the current
  // stream, and has the memory wait for it before it is used again.
  void use_on_current_stream() const;
  void use_on_current_stream(const compat::TouchedStorage& cast) const;

  // Makes memory for the storage of a cast, from the values of now; the unit is whole.
  void fill_cast(compat::TouchedStorage& storage);
  // A storage of the unit that got memory otherwise.
  void note_cast(compat::TouchedStorage& storage);

  // The whole row, undefined unless kWhole.
  const at::Tensor& row() const { return row_; }
  // Where values of the row differ from what the shard was gathered as, takes them over.
  void take_over_row();
  // The values of parameters have changed, as far as autograd is concerned.
  void bump_versions();
  // Parameters get memory of their own, with the values of all shards; the unit is of no use
  // afterwards. Collective.
  void give_back(ShardGatherer& gatherer);

 private:
  std::function<void()> gather_into(const at::Tensor& row, ShardGatherer& gatherer) const;
  at::DataPtr memory_at(int64_t begin) const;
  void note_ready();

  UnitParameters parameters_;
  UnitLayout layout_;
  int rank_;
  at::ScalarType whole_dtype_;
  std::vector<compat::TouchedStoragePtr> storages_;
  at::Tensor shard_;
  std::vector<at::Tensor> pieces_;

  State state_ = State::kInPieces;
  at::Tensor row_;
  std::function<void()> finish_;
  std::vector<c10::weak_intrusive_ptr<compat::TouchedStorage>> casts_;  // those with memory
  // Of a device, while there is a row:
  std::optional<c10::Stream> made_on_;   // whose memory it is
  std::optional<c10::Stream> ready_on_;  // the stream on which it, or a cast of it, came last
  std::optional<c10::Event> ready_;      // when it had come
};

}  // namespace accelerate::residency

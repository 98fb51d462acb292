// A loader whose type names only its batches: for members, and for functions
// that should not be templates.
//
//   void train(accelerate::Prepared<Net>& model, const accelerate::Loader<accelerate::Sample>&
//   data);
//
// Loader<accelerate::Sample> is for datasets of labelled samples such as TensorDataset,
// Loader<torch::data::Example<>> for those of torch::data, Loader<accelerate::UnlabelledBatch> for
// samples that are one tensor or number each; in general the type is DataLoader::Value.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "accelerate/data_loader.h"
#include "accelerate/detail/loader_control.h"
#include "accelerate/detail/sample_digest.h"
#include "accelerate/loader_iterator.h"
#include "accelerate/loader_options.h"

namespace accelerate {

// Any DataLoader with batches of `BatchValue`; made from one implicitly. A handle of the same
// loader: epoch, position and data are shared with the DataLoader it was made from. The calls are
// those of DataLoader; each costs one virtual call more, and so does each pass.
template <class BatchValue>
class Loader {
 public:
  using Value = BatchValue;
  using Iterator = LoaderIterator<Value>;

  // NOLINTBEGIN(google-explicit-constructor): a handle of the same loader
  template <class Source, class Collate>
  requires std::is_same_v<typename DataLoader<Source, Collate>::Value, Value> Loader(
      DataLoader<Source, Collate> loader)
      : erased_(std::make_shared<Erased<DataLoader<Source, Collate>>>(std::move(loader))) {}
  // NOLINTEND(google-explicit-constructor)
  Loader(const Loader&) = default;
  Loader& operator=(const Loader&) = default;

  Iterator begin() const { return erased_->begin(); }
  std::default_sentinel_t end() const { return {}; }

  int64_t size() const { return erased_->size(); }
  std::optional<int64_t> size_if_known() const { return erased_->size_if_known(); }
  const LoaderOptions& options() const { return erased_->options(); }

  int64_t epoch() const { return control()->epoch(); }
  void set_epoch(int64_t epoch) { control()->set_epoch(epoch); }
  LoaderState state_dict() const { return erased_->state_dict(); }
  void load_state_dict(const LoaderState& state) { erased_->load_state_dict(state); }
  void check_state_dict(const LoaderState& state) const { erased_->check_state_dict(state); }
  Loader skip_first_batches(int64_t batches) const { return erased_->skip_first_batches(batches); }

  bool is_sharded() const { return shard().has_value(); }
  const std::optional<LoaderShard>& shard() const { return erased_->shard(); }
  Loader sharded(const LoaderShard& shard) const { return erased_->sharded(shard); }

  // Internal: see DataLoader.
  const std::shared_ptr<detail::LoaderControl>& control() const { return erased_->control(); }
  bool is_batch_stream() const { return erased_->is_batch_stream(); }
  std::optional<detail::SampleDigest> sample_digest() const { return erased_->sample_digest(); }
  std::function<std::optional<Loader>()> weak_handle() const { return erased_->weak_handle(); }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual Iterator begin() const = 0;
    virtual int64_t size() const = 0;
    virtual std::optional<int64_t> size_if_known() const = 0;
    virtual const LoaderOptions& options() const = 0;
    virtual LoaderState state_dict() const = 0;
    virtual void load_state_dict(const LoaderState& state) = 0;
    virtual void check_state_dict(const LoaderState& state) const = 0;
    virtual Loader skip_first_batches(int64_t batches) const = 0;
    virtual const std::optional<LoaderShard>& shard() const = 0;
    virtual Loader sharded(const LoaderShard& shard) const = 0;
    virtual const std::shared_ptr<detail::LoaderControl>& control() const = 0;
    virtual bool is_batch_stream() const = 0;
    virtual std::optional<detail::SampleDigest> sample_digest() const = 0;
    virtual std::function<std::optional<Loader>()> weak_handle() const = 0;
  };

  template <class Known>
  struct Erased final : Interface {
    explicit Erased(Known known) : loader(std::move(known)) {}
    Iterator begin() const override { return loader.begin(); }
    int64_t size() const override { return loader.size(); }
    std::optional<int64_t> size_if_known() const override { return loader.size_if_known(); }
    const LoaderOptions& options() const override { return loader.options(); }
    LoaderState state_dict() const override { return loader.state_dict(); }
    void load_state_dict(const LoaderState& state) override { loader.load_state_dict(state); }
    void check_state_dict(const LoaderState& state) const override {
      loader.check_state_dict(state);
    }
    Loader skip_first_batches(int64_t batches) const override {
      return loader.skip_first_batches(batches);
    }
    const std::optional<LoaderShard>& shard() const override { return loader.shard(); }
    Loader sharded(const LoaderShard& shard) const override { return loader.sharded(shard); }
    const std::shared_ptr<detail::LoaderControl>& control() const override {
      return loader.control();
    }
    bool is_batch_stream() const override { return loader.is_batch_stream(); }
    std::optional<detail::SampleDigest> sample_digest() const override {
      return loader.sample_digest();
    }
    std::function<std::optional<Loader>()> weak_handle() const override {
      return [find = loader.weak_handle()]() -> std::optional<Loader> {
        auto found = find();
        if (!found) return std::nullopt;
        return Loader(std::move(*found));
      };
    }

    Known loader;
  };

  std::shared_ptr<Interface> erased_;
};

template <class Value>
Loader<Value> skip_first_batches(const Loader<Value>& loader, int64_t batches) {
  return loader.skip_first_batches(batches);
}

}  // namespace accelerate

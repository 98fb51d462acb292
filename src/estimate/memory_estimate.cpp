#include "estimate/memory_estimate.h"

#include "accelerate/errors.h"

namespace accelerate::estimate {
namespace {

// One model under one request.
class Estimator {
 public:
  Estimator(const ModelSource& model, const EstimateRequest& request)
      : model_(model), request_(request), sizes_(measure(model.parameters)) {
    for (const Optimizer optimizer : all_optimizers()) {
      optimizer_bytes_[optimizer] = optimizer_bytes(optimizer, model.parameters);
    }
    if (request.batch) architecture_ = described_architecture();
  }

  const ModelSizes& sizes() const { return sizes_; }
  std::string architecture() const {
    return architecture_ ? architecture_->name : model_.architecture;
  }

  DtypeEstimate of_dtype(Dtype dtype) const {
    DtypeEstimate result{
        .dtype = dtype,
        .largest_layer = bytes_in(dtype, sizes_.largest_floats) + sizes_.largest_fixed_bytes,
        .total = loaded(dtype),
        .activations = activations(dtype),
        .reference = reference_usage(loaded(Dtype::kFloat32), name_of(dtype))};
    if (!is_trainable(dtype)) return result;
    for (const auto& [optimizer, bytes] : optimizer_bytes_) {
      result.training[optimizer] = training_need(sizes_, bytes, dtype, Sharding::kDdp, 1);
    }
    return result;
  }

  uint64_t of_rank(Dtype dtype, Sharding sharding, uint64_t ranks) const {
    const uint64_t optimizer = optimizer_bytes_.at(request_.optimizer);
    return training_need(sizes_, optimizer, dtype, sharding, ranks).total() +
           activations(dtype).value_or(0);
  }

  std::optional<uint64_t> gpus_to_load(Dtype dtype, const GpuSet& gpus) const {
    const uint64_t room = room_of(gpus);
    const uint64_t layer = bytes_in(dtype, sizes_.largest_floats) + sizes_.largest_fixed_bytes;
    if (loaded(dtype) <= room) return 1;
    if (room == 0 || layer > room) return std::nullopt;
    const uint64_t count = (loaded(dtype) + room - 1) / room;
    return count <= gpus.count ? std::optional(count) : std::nullopt;
  }

  std::optional<uint64_t> gpus_to_train(Dtype dtype, Sharding sharding, const GpuSet& gpus) const {
    for (uint64_t count = 1; count <= gpus.count; ++count) {
      if (of_rank(dtype, sharding, count) <= room_of(gpus)) return count;
    }
    return std::nullopt;
  }

 private:
  static uint64_t room_of(const GpuSet& gpus) {
    return gpus.bytes > kGpuReserve ? gpus.bytes - kGpuReserve : 0;
  }

  uint64_t loaded(Dtype dtype) const { return bytes_in(dtype, sizes_.floats) + sizes_.fixed_bytes; }

  std::optional<uint64_t> activations(Dtype dtype) const {
    if (!architecture_ || !is_trainable(dtype)) return std::nullopt;
    return activation_bytes(*architecture_, dtype, *request_.batch);
  }

  ModelLayout described_architecture() const {
    if (!model_.config) {
      throw UsageError({.what = "activations need the config.json of the model",
                        .where = model_.origin,
                        .hint = "put it beside the weights, or leave out --batch and --sequence"});
    }
    return read_architecture(*model_.config);
  }

  const ModelSource& model_;
  const EstimateRequest& request_;
  ModelSizes sizes_;
  std::map<Optimizer, uint64_t> optimizer_bytes_;
  std::optional<ModelLayout> architecture_;
};

}  // namespace

MemoryEstimate estimate_memory(const ModelSource& model, const EstimateRequest& request) {
  const Estimator estimator(model, request);
  MemoryEstimate result{.origin = model.origin,
                        .architecture = estimator.architecture(),
                        .parameters = estimator.sizes().floats,
                        .tensors = model.parameters.size(),
                        .largest_layer = estimator.sizes().largest_layer};
  for (const Dtype dtype : request.dtypes) {
    result.dtypes.push_back(estimator.of_dtype(dtype));
    if (request.gpus) {
      result.fits.push_back({dtype, std::nullopt, estimator.gpus_to_load(dtype, *request.gpus)});
    }
    if (!is_trainable(dtype)) continue;
    for (const Sharding sharding : all_shardings()) {
      for (const uint64_t ranks : request.ranks) {
        result.ranks.push_back({dtype, sharding, ranks, estimator.of_rank(dtype, sharding, ranks)});
      }
      if (request.gpus) {
        result.fits.push_back(
            {dtype, sharding, estimator.gpus_to_train(dtype, sharding, *request.gpus)});
      }
    }
  }
  return result;
}

}  // namespace accelerate::estimate

#include <ATen/ATen.h>

#include <cstring>
#include <sstream>

#include "accelerate/detail/collated.h"
#include "accelerate/detail/pinned_collation.h"
#include "accelerate/errors.h"
#include "data/plain_tensor.h"

namespace accelerate::detail {
namespace {

thread_local bool pinned_collation = false;

std::string place(const NestedPath& path) {
  const std::string name = path.str();
  return name.empty() ? name : " at `" + name + '`';
}

std::string samples(size_t sample) { return "samples 0 and " + std::to_string(sample); }

template <class T>
[[noreturn]] void refuse_to_stack(const NestedPath& path, size_t sample, const char* property,
                                  const T& first, const T& other) {
  std::ostringstream what;
  what << samples(sample) << " of a batch differ in " << property << place(path) << ": " << first
       << " and " << other;
  throw DataError({.what = what.str(),
                   .hint = "make get() return samples of one shape and dtype, or give "
                           "data_loader() a collate function that pads them"});
}

void check_alike(const at::Tensor& first, const at::Tensor& other, size_t sample,
                 const NestedPath& path) {
  if (first.defined() != other.defined()) {
    throw DataError({.what = "sample " + std::to_string(first.defined() ? sample : 0) +
                             " of a batch holds an undefined tensor" + place(path)});
  }
  if (!first.defined()) return;
  if (other.sizes() != first.sizes())
    refuse_to_stack(path, sample, "shape", first.sizes(), other.sizes());
  if (other.scalar_type() != first.scalar_type()) {
    refuse_to_stack(path, sample, "dtype", first.scalar_type(), other.scalar_type());
  }
  if (other.device() != first.device()) {
    refuse_to_stack(path, sample, "device", first.device(), other.device());
  }
}

at::Tensor copy_into_one(c10::ArrayRef<at::Tensor> samples) {
  const at::Tensor& first = samples.front();
  c10::SmallVector<int64_t, 6> sizes{static_cast<int64_t>(samples.size())};
  sizes.append(first.sizes().begin(), first.sizes().end());
  at::Tensor batch = empty_batch(sizes, first.scalar_type());
  const size_t bytes = first.nbytes();
  if (bytes == 0) return batch;
  auto* out = static_cast<char*>(batch.data_ptr());
  for (const at::Tensor& sample : samples) {
    std::memcpy(out, sample.data_ptr(), bytes);
    out += bytes;
  }
  return batch;
}

}  // namespace

PinnedCollation::PinnedCollation() : outer_(std::exchange(pinned_collation, true)) {}
PinnedCollation::~PinnedCollation() { pinned_collation = outer_; }
bool PinnedCollation::active() { return pinned_collation; }

at::Tensor empty_batch(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::empty(sizes, at::TensorOptions().dtype(dtype).pinned_memory(pinned_collation));
}

at::Tensor stack_samples(c10::ArrayRef<at::Tensor> samples, const NestedPath& path) {
  check_samples(samples.size());
  const at::Tensor& first = samples.front();
  bool plain = true;
  for (size_t i = 0; i < samples.size(); ++i) {
    check_alike(first, samples[i], i, path);
    plain = plain && samples[i].defined() && is_plain(samples[i]);
  }
  if (!first.defined()) return {};
  if (plain) return copy_into_one(samples);
  const at::Tensor batch = at::stack(samples);
  return pinned_collation && batch.is_cpu() ? batch.pin_memory() : batch;
}

void check_samples(size_t samples) {
  if (samples == 0) throw DataError({.what = "the dataset returned a batch without samples"});
}

void check_length(const NestedPath& path, size_t first, size_t sample, size_t length) {
  if (length != first) refuse_to_stack(path, sample, "length", first, length);
}

void refuse_keys(const NestedPath& path, const std::string& key, size_t sample) {
  throw DataError({.what = samples(sample) + " of a batch differ in their keys" + place(path) +
                           ": one of them lacks `" + key + '`',
                   .hint = "give every sample the same keys, or give data_loader() a collate "
                           "function"});
}

void refuse_optional(const NestedPath& path, size_t sample) {
  throw DataError(
      {.what = "only one of " + samples(sample) + " of a batch has a value" + place(path),
       .hint = "give it to every sample or to none, or give data_loader() a collate "
               "function"});
}

}  // namespace accelerate::detail

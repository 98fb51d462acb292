#include "strategy/zero/empty_model.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "accelerate/errors.h"
#include "comm/agreement.h"
#include "compat/deferred.h"
#include "compat/touched.h"

namespace accelerate {
namespace {

constexpr const char* kHere = "values";
constexpr const char* kLoaded = "loaded";
constexpr const char* kUnknown = "unknown";

std::vector<std::pair<std::string, at::Tensor>> distinct_tensors(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, at::Tensor>> all;
  std::unordered_set<const void*> seen;
  const auto add = [&](const auto& items) {
    for (const auto& item : items) {
      if (!item.value().defined()) continue;
      if (seen.insert(item.value().unsafeGetTensorImpl()).second) {
        all.emplace_back(item.key(), item.value());
      }
    }
  };
  add(module.named_parameters());
  add(module.named_buffers());
  return all;
}

[[noreturn]] void refuse_unknown(const std::string& name, int rank) {
  throw UsageError({.what = "'" + name + "' is on the meta device on rank " + std::to_string(rank) +
                            ", and nothing says which values it would have",
                    .where = "prepare",
                    .hint = "build the module inside of init_empty_weights(), or load a checkpoint "
                            "on rank 0"});
}

}  // namespace

std::string EmptyModel::origin_of(const at::Tensor& tensor, std::vector<const void*>& records) {
  if (!tensor.is_meta()) return kHere;
  if (!compat::is_deferred(tensor)) return kUnknown;
  const auto record = compat::record_of(tensor);
  if (!record) return kLoaded;
  auto found = std::ranges::find(records, static_cast<const void*>(record.get()));
  std::string text = "recorded " + std::to_string(found - records.begin());
  if (found != records.end()) return text;
  records.push_back(record.get());
  return text + compat::digest_of(*record);
}

EmptyModel::EmptyModel(const torch::nn::Module& module, std::shared_ptr<Communicator> ranks)
    : ranks_(std::move(ranks)) {
  const auto all = distinct_tensors(module);
  std::vector<const void*> records;
  std::vector<std::string> own;
  for (const auto& [name, tensor] : all) own.push_back(origin_of(tensor, records));
  const auto is_here = [](const std::string& origin) { return origin == kHere; };
  const std::string text = std::ranges::all_of(own, is_here) ? "" : comm::to_fields(own);
  const std::vector<std::string> texts = ranks_->all_gather_bytes(text);
  if (std::ranges::all_of(texts, [](const std::string& other) { return other.empty(); })) return;
  std::vector<std::vector<std::string>> origins;
  for (const std::string& other : texts) {
    origins.push_back(other.empty() ? std::vector<std::string>(all.size(), kHere)
                                    : comm::from_fields(other));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string& first = origins[0][i];
    const bool is_same = std::ranges::all_of(
        origins, [&](const std::vector<std::string>& origin) { return origin[i] == first; });
    if (is_same && is_here(first)) continue;
    if (first == kUnknown) refuse_unknown(all[i].first, ranks_->global_ranks()[0]);
    tensors_.push_back({.name = all[i].first,
                        .tensor = all[i].second,
                        .own = all[i].second.detach(),
                        .from_first = !is_same || is_here(first)});
    numbers_.insert(all[i].second.unsafeGetTensorImpl());
  }
}

void EmptyModel::make_memory(c10::Device device, const std::unordered_set<const void*>& others) {
  const compat::OrdinaryTensors ordinary;
  for (Empty& empty : tensors_) {
    if (!empty.tensor.is_meta() || others.contains(empty.tensor.unsafeGetTensorImpl())) continue;
    compat::replace_data(empty.tensor,
                         at::empty_strided(empty.tensor.sizes(), empty.tensor.strides(),
                                           empty.tensor.options().device(device)));
  }
}

void EmptyModel::produce(bool from_first,
                         const std::function<void(size_t, const at::Tensor&)>& give) {
  std::map<size_t, std::pair<std::shared_ptr<compat::DeferredRecord>, std::vector<size_t>>>
      recorded;
  std::map<const void*, size_t> firsts;  // of a record, its first tensor
  for (size_t i = 0; i < tensors_.size(); ++i) {
    Empty& empty = tensors_[i];
    if (empty.from_first != from_first) continue;
    if (auto record = compat::record_of(empty.own)) {
      const size_t first = firsts.try_emplace(record.get(), i).first->second;
      recorded[first].first = std::move(record);
      recorded[first].second.push_back(i);
      continue;
    }
    const bool is_loaded = compat::is_deferred(empty.own);
    give(i, is_loaded ? compat::deferred_source(empty.own) : empty.own);
    empty.own.reset();
  }
  for (auto& [first, members] : recorded) {
    auto& [record, numbers] = members;
    std::vector<at::Tensor> tensors;
    for (const size_t i : numbers) tensors.push_back(tensors_[i].own);
    compat::replay(*record, tensors, [&, &numbers = numbers](size_t k, const at::Tensor& values) {
      give(numbers[k], values);
    });
    for (const size_t i : numbers) tensors_[i].own.reset();
  }
}

void EmptyModel::fill_here(const Take& take) {
  // What is random begins as on rank 0.
  std::unordered_set<const void*> seen;
  for (const Empty& empty : tensors_) {
    if (empty.from_first) continue;
    const auto record = compat::record_of(empty.own);
    if (!record || !seen.insert(record.get()).second) continue;
    for (at::Tensor& state : compat::random_states_of(*record)) ranks_->broadcast(state);
  }
  comm::together(*ranks_, [&] {
    produce(false, [&](size_t i, const at::Tensor& values) { take(tensors_[i].tensor, values); });
  });
}

void EmptyModel::fill_from_first(const Take& take) {
  constexpr int64_t kNone = -1;
  const auto count = std::ranges::count_if(tensors_, &Empty::from_first);
  if (count == 0) return;
  std::exception_ptr error;
  const auto send = [&](size_t i, const at::Tensor& values) {
    at::Tensor number = at::scalar_tensor(static_cast<int64_t>(i), at::kLong);
    ranks_->broadcast(number);
    at::Tensor whole = values.to(at::kCPU, tensors_[i].tensor.scalar_type()).contiguous();
    ranks_->broadcast(whole);
    take(tensors_[i].tensor, whole);
  };
  if (ranks_->rank() == 0) {
    try {
      produce(true, send);
    } catch (const CommError&) {
      throw;
    } catch (...) {
      error = std::current_exception();
      at::Tensor none = at::scalar_tensor(kNone, at::kLong);
      ranks_->broadcast(none);
    }
  } else {
    for (int64_t taken = 0; taken < count; ++taken) {
      at::Tensor number = at::scalar_tensor(kNone, at::kLong);
      ranks_->broadcast(number);
      if (number.item<int64_t>() == kNone) break;
      Empty& empty = tensors_[static_cast<size_t>(number.item<int64_t>())];
      empty.own.reset();
      at::Tensor whole =
          at::empty(empty.tensor.sizes(), at::TensorOptions(empty.tensor.scalar_type()));
      ranks_->broadcast(whole);
      take(empty.tensor, whole);
    }
  }
  comm::together(*ranks_, [&] {
    if (error) std::rethrow_exception(error);
  });
}

void EmptyModel::fill(const Take& take) {
  if (none()) return;
  const compat::OrdinaryTensors ordinary;
  const at::NoGradGuard no_grad;
  fill_here(take);
  fill_from_first(take);
}

}  // namespace accelerate

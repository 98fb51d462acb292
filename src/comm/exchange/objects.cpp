// Collectives over values that are not tensors: their bytes travel in CPU tensors.
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <cstring>

#include "accelerate/communicator.h"
#include "accelerate/detail/stamped.h"
#include "accelerate/errors.h"
#include "comm/agreement.h"
#include "comm/groups/communicator_impl.h"
#include "compat/c10d.h"

namespace accelerate {
namespace {

at::Tensor to_tensor(std::string_view bytes) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  if (!bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

std::string to_string(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.data_ptr()), static_cast<size_t>(tensor.numel())};
}

// A rank that has no object to send says why in its place, where the others would wait for it.
comm::TogetherOptions unless_it_cannot_be_sent(const char* operation) {
  return {.retell = [operation](const Communicator& ranks, const comm::RankFailure& failure) {
    const std::string& cause = failure.info.what;
    detail::throw_usage_error(ranks,
                              {.what = "the value of rank " + std::to_string(failure.rank) +
                                       " cannot be sent: " + cause.substr(0, cause.find('\n')),
                               .where = operation,
                               .hint = "send numbers, strings, tensors, lists and maps of these"});
  }};
}

}  // namespace

std::string Communicator::broadcast_bytes(std::string_view bytes, int root) {
  at::Tensor size = at::tensor(static_cast<int64_t>(bytes.size()), at::kLong);
  broadcast(size, root);
  at::Tensor content =
      rank() == root ? to_tensor(bytes) : at::empty({size.item<int64_t>()}, at::kByte);
  broadcast(content, root);
  return to_string(content);
}

std::vector<std::string> Communicator::all_gather_bytes(std::string_view bytes) {
  if (world_size() == 1) return {std::string(bytes)};
  const std::vector<at::Tensor> sizes =
      all_gather(at::tensor(static_cast<int64_t>(bytes.size()), at::kLong));
  int64_t longest = 0;
  for (const at::Tensor& size : sizes) longest = std::max(longest, size.item<int64_t>());
  at::Tensor padded = at::zeros({longest}, at::kByte);
  padded.narrow(0, 0, static_cast<int64_t>(bytes.size())).copy_(to_tensor(bytes));
  const std::vector<at::Tensor> contents = all_gather(padded);
  std::vector<std::string> result;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    result.push_back(to_string(contents[rank].narrow(0, 0, sizes[rank].item<int64_t>())));
  }
  return result;
}

c10::IValue Communicator::broadcast_object(const c10::IValue& object, int root) {
  impl_->require_rank(root, "broadcast_object");
  if (world_size() == 1) return object;
  return compat::from_bytes(comm::broadcast_together(
      *this, root, [&] { return compat::to_bytes(object); },
      unless_it_cannot_be_sent("broadcast_object")));
}

std::vector<c10::IValue> Communicator::all_gather_object(const c10::IValue& object) {
  if (world_size() == 1) return {object};
  std::vector<c10::IValue> result;
  for (const std::string& bytes : comm::gather_together(
           *this, [&] { return compat::to_bytes(object); },
           unless_it_cannot_be_sent("all_gather_object"))) {
    result.push_back(compat::from_bytes(bytes));
  }
  return result;
}

}  // namespace accelerate

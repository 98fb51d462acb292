// Gathering of all tensors of a nested value.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <vector>

#include "accelerate/detail/operands.h"
#include "comm/exchange/byte_rows.h"
#include "comm/exchange/host_leaves.h"
#include "comm/exchange/tensor_buckets.h"
#include "comm/exchange/value_agreement.h"
#include "comm/exchange/value_checks.h"
#include "comm/groups/communicator_impl.h"

namespace accelerate::detail {
namespace {

using Sizes = std::vector<int64_t>;

// The tensors of one bucket, on all ranks, in one row of bytes a rank.
class GatheredBucket {
 public:
  GatheredBucket(Communicator& ranks, const Operands& operands, const comm::AgreedSizes& sizes,
                 const std::vector<size_t>& tensors)
      : ranks_(ranks), operands_(operands), sizes_(sizes), tensors_(tensors) {
    for (int rank = 0; rank < ranks.world_size(); ++rank) {
      row_bytes_ = std::max(row_bytes_, offset_of(rank, tensors.size()));
    }
    const at::Tensor own = own_row();
    all_ = at::empty({ranks.world_size() * row_bytes_}, own.options());
    Communicator::Impl& impl = comm::impl_of(ranks);
    impl.collective(comm::operation_event(operands.where), own,
                    [&] { return impl.collectives_for(own).all_gather(all_, own); });
  }

  // What all ranks have of one of the tensors.
  at::Tensor joined(size_t place) const {
    const size_t tensor = tensors_[place];
    const at::Tensor& sample = *operands_.tensors[tensor];
    if (tensors_.size() == 1 && sizes_.equal()) {
      Sizes sizes = rows_of(0, tensor);
      sizes[0] *= ranks_.world_size();
      return comm::view_in(all_, 0, sample, sizes);
    }
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < ranks_.world_size(); ++rank) {
      parts.push_back(comm::view_in(all_, rank * row_bytes_ + offset_of(rank, place), sample,
                                    rows_of(rank, tensor)));
    }
    return at::cat(parts, 0);
  }

 private:
  // The sizes of a tensor, one without dimensions as one row.
  Sizes rows_of(int rank, size_t tensor) const {
    Sizes sizes = sizes_.of(rank, tensor);
    if (sizes.empty()) sizes.push_back(1);
    return sizes;
  }

  // Where the tensor at `place` of the bucket begins in the row of `rank`.
  int64_t offset_of(int rank, size_t place) const {
    int64_t offset = 0;
    for (size_t before = 0; before < place; ++before) {
      const size_t tensor = tensors_[before];
      offset += comm::count_bytes(*operands_.tensors[tensor], sizes_.of(rank, tensor));
      if (tensors_.size() > 1) offset = comm::aligned(offset);
    }
    return offset;
  }

  at::Tensor own_row() const {
    const at::Tensor& first = *operands_.tensors[tensors_.front()];
    if (tensors_.size() == 1 && comm::count_bytes(first, first.sizes()) == row_bytes_) {
      return comm::to_bytes(first);
    }
    at::Tensor row = at::zeros({row_bytes_}, first.options().dtype(at::kByte).requires_grad(false));
    for (size_t place = 0; place < tensors_.size(); ++place) {
      const at::Tensor bytes = comm::to_bytes(*operands_.tensors[tensors_[place]]);
      row.narrow(0, offset_of(ranks_.rank(), place), bytes.numel()).copy_(bytes);
    }
    return row;
  }

  Communicator& ranks_;
  const Operands& operands_;
  const comm::AgreedSizes& sizes_;
  const std::vector<size_t>& tensors_;
  int64_t row_bytes_ = 0;  // of the longest rank
  at::Tensor all_;
};

}  // namespace

void gather_operands(Communicator& ranks, Operands& operands) {
  comm::check_devices(ranks, operands);
  const comm::AgreedSizes sizes = comm::agree(ranks, operands, comm::Fit::kRows);
  at::NoGradGuard no_grad;
  if (ranks.world_size() == 1) {
    for (at::Tensor* tensor : operands.tensors) {
      *tensor = (tensor->dim() == 0 ? tensor->unsqueeze(0) : *tensor).detach();
    }
    return;
  }
  std::vector<int64_t> largest(operands.tensors.size(), 0);
  for (size_t tensor = 0; tensor < largest.size(); ++tensor) {
    for (int rank = 0; rank < ranks.world_size(); ++rank) {
      largest[tensor] = std::max(
          largest[tensor], comm::count_bytes(*operands.tensors[tensor], sizes.of(rank, tensor)));
    }
  }
  std::vector<at::Tensor> results(operands.tensors.size());
  for (const auto& bucket : comm::bucket_tensors(operands, largest, comm::BucketBy::kDevice)) {
    const GatheredBucket gathered(ranks, operands, sizes, bucket);
    for (size_t place = 0; place < bucket.size(); ++place) {
      results[bucket[place]] = gathered.joined(place);
    }
  }
  for (size_t tensor = 0; tensor < results.size(); ++tensor) {
    *operands.tensors[tensor] = results[tensor];
  }
  if (operands.host_leaves.empty()) return;
  comm::assign_leaves(operands.host_leaves,
                      ranks.all_gather_bytes(comm::message_of(operands.host_leaves)));
}

}  // namespace accelerate::detail

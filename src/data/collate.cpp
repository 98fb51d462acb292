#include "accelerate/detail/collate.h"

#include <ATen/ATen.h>
#include <c10/util/Type.h>

#include <sstream>
#include <string>

#include "accelerate/errors.h"

namespace accelerate::detail {
namespace {

[[noreturn]] void refuse_batch(const std::string& returned, size_t asked,
                               const std::type_info& dataset) {
  throw DataError({.what = "the dataset was asked for a batch of " + std::to_string(asked) +
                           " samples and returned " + returned,
                   .where = "get_batch() of " + c10::demangle(dataset.name()),
                   .hint = "return one row for each index, the batch as the first dimension"});
}

}  // namespace

void check_batch_size(size_t returned, size_t asked, const std::type_info& dataset) {
  if (returned != asked) refuse_batch("one of " + std::to_string(returned), asked, dataset);
}

void check_batch_size(const at::Tensor& tensor, size_t asked, const std::type_info& dataset) {
  if (!tensor.defined()) return;
  if (tensor.dim() == 0) refuse_batch("a tensor without a batch dimension", asked, dataset);
  check_batch_size(static_cast<size_t>(tensor.size(0)), asked, dataset);
}

at::Tensor stack_samples(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) throw DataError({.what = "the dataset returned a batch without samples"});
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) {
      throw DataError(
          {.what = "sample " + std::to_string(i) + " of the batch holds an undefined tensor"});
    }
    if (tensors[i].sizes() == tensors[0].sizes()) continue;
    std::ostringstream what;
    what << "samples of one batch differ in shape: " << tensors[0].sizes() << " and "
         << tensors[i].sizes();
    throw DataError({.what = what.str(),
                     .hint = "make get() return tensors of one shape, or give the dataset a "
                             "get_batch() that pads them"});
  }
  return at::stack(tensors);
}

int64_t known_size(std::optional<int64_t> size) {
  if (size) return *size;
  throw DataError({.what = "the dataset does not know its size, the loader needs it",
                   .hint = "return the number of samples from size()"});
}

}  // namespace accelerate::detail

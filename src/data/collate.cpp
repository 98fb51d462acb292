#include "accelerate/detail/collate.h"

#include <ATen/ATen.h>

#include <sstream>

#include "accelerate/errors.h"

namespace accelerate::detail {

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

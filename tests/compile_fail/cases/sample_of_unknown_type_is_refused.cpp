// expect: give data_loader() a collate function
// expect: Opaque
#include <accelerate/detail/collated.h>

#include <utility>
#include <vector>

struct Opaque {
  int* pixels = nullptr;
};

#ifdef MUST_FAIL
using Part = Opaque;
#else
using Part = at::Tensor;
#endif

using Image = std::pair<std::vector<Part>, int>;
using Batch = accelerate::detail::BatchOf<accelerate::detail::Collated<Image>>;

Batch collate(std::vector<Image> samples);
Batch collate(std::vector<Image> samples) {
  return accelerate::detail::to_batch(accelerate::detail::collate_samples(std::move(samples)));
}

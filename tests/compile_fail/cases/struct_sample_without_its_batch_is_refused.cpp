// expect: using Batch = MyBatch;
#include <accelerate/detail/collated.h>

#include <string>
#include <vector>

struct ImageBatch {
  at::Tensor pixels{};
  std::vector<std::string> name{};
  ACCELERATE_FIELDS(pixels, name)
};

struct Image {
#ifndef MUST_FAIL
  using Batch = ImageBatch;
#endif
  at::Tensor pixels{};
  std::string name{};
  ACCELERATE_FIELDS(pixels, name)
};

using Batch = accelerate::detail::Collated<Image>;
Batch none();
Batch none() { return {}; }

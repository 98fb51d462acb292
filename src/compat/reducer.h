// c10d's gradient reducer, under one constructor for all supported versions of torch.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <vector>

#include "compat/c10d.h"

namespace accelerate::compat {

struct ReducerOptions {
  size_t bucket_bytes_cap = c10d::kDefaultBucketBytesCap;
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = false;
  bool static_graph = false;
};

// A reducer of the gradients of `parameters`, whose names are for messages only. Parameter i gets
// sparse gradients where `sparse[i]`.
std::unique_ptr<c10d::Reducer> make_reducer(std::vector<at::Tensor> parameters,
                                            const std::vector<std::string>& names,
                                            std::vector<bool> sparse,
                                            c10::intrusive_ptr<c10d::ProcessGroup> group,
                                            const ReducerOptions& options);

}  // namespace accelerate::compat

#include "compat/reducer.h"

#include <torch/version.h>

#include <limits>
#include <unordered_map>
#include <utility>

namespace accelerate::compat {

ReducerAndLogger make_reducer(std::vector<at::Tensor> parameters,
                              const std::vector<std::string>& names, std::vector<bool> sparse,
                              c10::intrusive_ptr<c10d::ProcessGroup> group,
                              const ReducerOptions& options) {
  // Buckets are rebuilt after the first pass, in the order in which gradients became ready, unless
  // unused parameters are looked for. Until then one bucket does.
  const size_t first_cap = c10d::kDefaultFirstBucketBytes;
  const bool rebuilds = options.static_graph || !options.find_unused_parameters;
  const std::vector<size_t> limits = rebuilds
                                         ? std::vector<size_t>{std::numeric_limits<size_t>::max()}
                                         : std::vector<size_t>{first_cap, options.bucket_bytes_cap};
  auto assignment = c10d::compute_bucket_assignment_by_size(parameters, limits, sparse);
  // Gradients become ready from the last layer to the first.
  std::vector<std::vector<size_t>> buckets(std::get<0>(assignment).rbegin(),
                                           std::get<0>(assignment).rend());
  std::unordered_map<size_t, std::string> names_by_index;
  for (size_t index = 0; index < names.size(); ++index) names_by_index[index] = names[index];

  auto reducer = std::make_shared<GradientReducer>(
      std::move(parameters), std::move(buckets), std::move(group), std::move(sparse),
      static_cast<int64_t>(options.bucket_bytes_cap), options.find_unused_parameters,
      options.gradient_as_bucket_view, std::move(names_by_index), static_cast<int64_t>(first_cap),
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11
      ,
      /*bucket_bytes_cap_list=*/std::vector<int64_t>{}
#endif
  );
  if (options.static_graph) reducer->set_static_graph();
  // Without a logger the reducer follows a null pointer when the set of unused parameters changes.
  auto logger = std::make_shared<c10d::Logger>(reducer);
  reducer->set_logger(logger);
  return {std::move(reducer), std::move(logger)};
}

}  // namespace accelerate::compat

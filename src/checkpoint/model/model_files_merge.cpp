#include <utility>

#include "accelerate/model_files.h"
#include "files/merge/merge_weights.h"

namespace accelerate {

MergeWeightsReport merge_weights(const std::filesystem::path& source,
                                 const std::filesystem::path& target,
                                 const MergeWeightsOptions& options) {
  files::MergeOptions how{
      .overwrite = options.overwrite,
      .remove_source = options.remove_source,
      .links = options.follow_links ? files::Links::kFollowed : files::Links::kInside,
      .deepspeed_tag = options.deepspeed_tag,
      .exclude_frozen_parameters = options.exclude_frozen_parameters};
  if (options.max_shard_size) how.max_shard_bytes = options.max_shard_size->bytes();
  files::MergeReport report = files::merge_safetensors(source, target, how);
  return {.path = std::move(report.path),
          .tensors = report.tensors,
          .bytes = report.bytes,
          .files = report.files,
          .differing_metadata = std::move(report.differing_metadata),
          .left_out = std::move(report.left_out)};
}

}  // namespace accelerate

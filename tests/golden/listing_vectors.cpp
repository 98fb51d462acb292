// The vector files that have a test. All others in the folder are shown as skipped.
#include "golden/reference_data.h"

namespace accelerate::test {
namespace {

[[maybe_unused]] const int kUntested =
    list_untested(vectors_folder(), {"batch_sampler_shard.json",
                                     "batch_sampler_shard_dynamic.json",
                                     "batch_sampler_shard_errors.json",
                                     "checkpoint_layout.json",
                                     "collectives.json",
                                     "convert_file_size_to_int.json",
                                     "dataloader_end_to_end.json",
                                     "dtype_byte_size.json",
                                     "find_executable_batch_size.json",
                                     "golden_training.json",
                                     "grad_scaler.json",
                                     "gradient_accumulation_sync_schedule.json",
                                     "iterable_dataset_shard.json",
                                     "known_reference_bugs.json",
                                     "local_sgd.json",
                                     "pad_input_tensors.json",
                                     "scheduler.json",
                                     "seedable_random_sampler.json",
                                     "should_reduce_batch_size.json",
                                     "skip_batch_sampler.json",
                                     "state_dict_sharding.json"});

}  // namespace
}  // namespace accelerate::test

// The vector files that have a test, here or in config_vectors_test. All others in the folder are
// shown as skipped.
#include "golden/reference_data.h"

namespace accelerate::test {
namespace {

[[maybe_unused]] const int kUntested =
    list_recordings(vectors_folder(), {"batch_sampler_shard.json",
                                       "batch_sampler_shard_dynamic.json",
                                       "batch_sampler_shard_errors.json",
                                       "checkpoint_layout.json",
                                       "cluster_config_keys.json",
                                       "collectives.json",
                                       "config_default_cpu_machine_bf16.json",
                                       "config_file_upgrade.json",
                                       "convert_bytes.json",
                                       "convert_dict_to_env_variables.json",
                                       "convert_file_size_to_int.json",
                                       "dataloader_end_to_end.json",
                                       "deepspeed_config.json",
                                       "dtype_byte_size.json",
                                       "estimate_training_usage.json",
                                       "find_executable_batch_size.json",
                                       "golden_training.json",
                                       "grad_scaler.json",
                                       "gradient_accumulation_sync_schedule.json",
                                       "iterable_dataset_shard.json",
                                       "known_reference_bugs.json",
                                       "launch_env.json",
                                       "launch_options.json",
                                       "local_sgd.json",
                                       "pad_input_tensors.json",
                                       "parallelism_config_mesh.json",
                                       "scheduler.json",
                                       "seedable_random_sampler.json",
                                       "should_reduce_batch_size.json",
                                       "skip_batch_sampler.json",
                                       "state_dict_sharding.json",
                                       "str_to_bool.json",
                                       "to_fsdp2.json"});

}  // namespace
}  // namespace accelerate::test

// The fixture files that have a test. All others in the folder are shown as skipped.
#include "golden/reference_data.h"

namespace accelerate::test {
namespace {

[[maybe_unused]] const int kUntested =
    list_recordings(fixtures_folder(),
                    {"accelerate_state", "dcp_fsdp2", "ddp_training.json", "deepspeed_checkpoints",
                     "hf_models", "lr_schedules.json", "optimizers.json", "safetensors_bad",
                     "safetensors_valid", "tensorboard.json", "tokenizers"});

}  // namespace
}  // namespace accelerate::test

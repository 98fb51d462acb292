// The tables that make up the schema, one file an area.
#pragma once

#include <span>

#include "config/setting.h"

namespace accelerate::config {

std::span<const Setting> run_settings();        // what the launcher itself does
std::span<const Setting> fsdp_settings();       // sharding as FSDP calls it, and meshes
std::span<const Setting> deepspeed_settings();  // sharding as DeepSpeed calls it
std::span<const Setting> compute_settings();    // fp8 and torch.compile
std::span<const Setting> megatron_settings();   // Megatron-LM
std::span<const Setting> elsewhere_settings();  // TPUs and clouds
std::span<const Setting> file_only_settings();  // keys of configuration files without a flag

}  // namespace accelerate::config

// The local cache of the Hugging Face hub.
#pragma once

#include <filesystem>
#include <string>

namespace accelerate::transformers {

// Where find_pretrained() looks.
std::filesystem::path hub_cache_folder();

// Whether it is a snapshot of such a cache, whose files are links to its blobs.
bool is_hub_snapshot(const std::filesystem::path& folder);

}  // namespace accelerate::transformers

// What bench_data measures, each in a process of its own. All check their answers first and throw
// where one is wrong.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace bench {

// Samples a second through a prepared loader over 60,000 images of 28x28 bytes that become float32
// in [0, 1], in shuffled batches of 64. The images are two IDX files in `folder`, written there if
// missing; python_peer/data_loop.py reads the same ones.
nlohmann::json measure_images(const std::filesystem::path& folder, int repetitions);

// Blocks of 1,024 tokens in random order from a mapped file of 200 MB that is in memory, in batches
// of 16, against loops written by hand. The file is written to `folder`, and removed.
nlohmann::json measure_tokens(const std::filesystem::path& folder, int repetitions);

// What a loader itself costs a batch: the dataset does nothing.
nlohmann::json measure_cost(int repetitions);

// How long it takes to begin a pass over 10^9 samples at batch 1,000,000.
nlohmann::json measure_skip(int repetitions);

// What a loader over 10^9 samples adds to the memory of the process, read in many places.
nlohmann::json measure_memory();

}  // namespace bench

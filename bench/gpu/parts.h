// The parts of the GPU benchmark. Each returns rows for the table.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bench {

// Tokens a second and memory of GPT-2 at T = 1024 in bf16, on random tokens. `mode` is "plain"
// (libtorch's operators under autocast, prepared AdamW), "plain captured", "fused" or "captured"
// (examples/gpt2), "library" or "library captured" (the model of Accelerate::transformers).
nlohmann::json gpt2_speed(const std::string& model, int64_t batch, const std::string& mode);
// Kernel times of a few fused steps, as a trace of libtorch's profiler.
void gpt2_profile(int64_t batch, const std::string& trace_file);
// How far the losses of the fused bf16 model are from those of the plain float32 one.
nlohmann::json gpt2_loss_agreement(int steps);
// The MLP 784-512-512-10 at batch 64, eager and captured.
nlohmann::json mlp_speed();
// The update alone on the parameters of GPT-2 124M.
nlohmann::json optimizer_speed();
// Fused operations beside libtorch's, forwards and backwards, at batch 16 of GPT-2 124M.
nlohmann::json operation_speed();
// linear_cross_entropy() with chunks of several sizes: more rows at a time are faster products.
nlohmann::json chunk_speed();
// save_state() and load_state() of a model and its AdamW in GPU memory.
nlohmann::json checkpoint_speed();

}  // namespace bench

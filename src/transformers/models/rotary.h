// Rotary position embedding with the ways of stretching it that Hugging Face's configurations know.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "accelerate/transformers/config.h"

namespace accelerate::transformers {

// rope_parameters as transformers 5 writes them, or rope_theta and rope_scaling as before.
struct RotaryOptions {
  std::string type = "default";  // or linear, dynamic, llama3, yarn
  double theta = 10000.0;
  int64_t width = 0;  // of a head
  int64_t positions = 0;
  double factor = 1.0;
  double low_frequency_factor = 1.0, high_frequency_factor = 4.0;  // llama3
  int64_t original_positions = 0;                                  // llama3, yarn
  double attention_factor = 1.0;                                   // yarn
  double beta_fast = 32.0, beta_slow = 1.0;                        // yarn
  bool truncate = true;                                            // yarn

  // Throws DataError for a type that is not known, and for numbers that make no sense.
  static RotaryOptions from_config(const ModelConfig& config, int64_t head_width);
};

// Angles a position for each pair of a head, float32 [width / 2] on the CPU. `length` is that of
// the text, which counts for the type dynamic alone.
at::Tensor rotary_frequencies(const RotaryOptions& options, int64_t length);

// The cosines and sines of positions, made once. Any thread.
class Rotary {
 public:
  explicit Rotary(RotaryOptions options);

  // {cosine, sine} for the positions from `first` on, float32 [count, width / 2] on `device`.
  std::pair<at::Tensor, at::Tensor> at(int64_t first, int64_t count, c10::Device device);
  // For positions [batch, count], on their device: [batch * count, width / 2]. Their values are
  // read for the type dynamic alone.
  std::pair<at::Tensor, at::Tensor> at(const at::Tensor& positions);

 private:
  std::pair<at::Tensor, at::Tensor> table(int64_t length, c10::Device device);
  void make_table(int64_t length, c10::Device device);

  // Frequencies for texts of that length.
  at::Tensor frequencies(int64_t length, c10::Device device);

  const RotaryOptions options_;
  std::mutex mutex_{};
  at::Tensor frequencies_{};      // on the device where they were wanted last
  at::Tensor cosine_{}, sine_{};  // [positions, width / 2]
  int64_t length_ = 0;            // of the text they were made for, type dynamic
};

// x [batch, positions, heads, width] turned by the angles of Rotary::at().
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine);

}  // namespace accelerate::transformers

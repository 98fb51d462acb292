// The best next token without the scores of all.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace accelerate::transformers {

// Making one score for each token of a vocabulary reads the whole matrix, which for a small model
// is most of a step. This keeps a second matrix in 8 bits, a quarter of the bytes, with a scale for
// each token. Scores by it are wrong by no more than a bound that follows from the scale; those few
// tokens that can be the best within the bounds get their true score from the matrix itself, in
// float64. So the answer is the argmax of the true scores, not an approximation.
//
// Of the CPU and float32. One thread at a time; it uses those of libtorch inside.
class BestToken {
 public:
  // Whether it is worth it: for such a matrix, so many texts at a time and so many steps.
  static bool fits(const at::Tensor& matrix, int64_t batch, int64_t steps);

  // `matrix` [vocabulary, width] must not change afterwards.
  explicit BestToken(const at::Tensor& matrix);

  // For features [batch, width], the token whose row has the largest product with them, the first
  // of equals, as [batch] of int64. Those in `forbidden` are never chosen.
  at::Tensor choose(const at::Tensor& features, const std::vector<int64_t>& forbidden) const;

 private:
  int64_t choose_one(const float* features, const float* scores,
                     const std::vector<int64_t>& forbidden) const;

  at::Tensor matrix_;
  at::Tensor bytes_;   // [vocabulary, width] of int8
  at::Tensor scales_;  // [vocabulary]
};

}  // namespace accelerate::transformers

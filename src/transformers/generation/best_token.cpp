#include "transformers/generation/best_token.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace accelerate::transformers {
namespace {

constexpr int64_t kLeastElements = int64_t{1} << 20;  // below, the matrix is fast as it is
constexpr int64_t kMostTexts = 4;    // above, one product for all texts is limited by arithmetic
constexpr int64_t kLeastSteps = 16;  // making the second matrix takes about as long as three steps
constexpr int64_t kRowsOfAThread = 1024;
constexpr float kMostByte = 127.0F;

// Of as many elements as the widest registers hold; compilers cut them for narrower ones.
constexpr int64_t kLanes = 16;
using Floats [[gnu::vector_size(kLanes * sizeof(float))]] = float;
using Bytes [[gnu::vector_size(kLanes)]] = int8_t;

// `sums` + values * bytes, for kLanes of each.
[[gnu::always_inline]] inline void add_products(Floats& sums, const int8_t* bytes,
                                                const float* values) {
  Bytes own_bytes;
  Floats own_values;
  std::memcpy(&own_bytes, bytes, sizeof(own_bytes));
  std::memcpy(&own_values, values, sizeof(own_values));
  sums += own_values * __builtin_convertvector(own_bytes, Floats);
}

[[gnu::always_inline]] inline float dot(const int8_t* bytes, const float* values, int64_t count) {
  // Four sums do not wait for each other.
  Floats first{};
  Floats second{};
  Floats third{};
  Floats fourth{};
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    add_products(first, bytes + i, values + i);
    add_products(second, bytes + i + kLanes, values + i + kLanes);
    add_products(third, bytes + i + 2 * kLanes, values + i + 2 * kLanes);
    add_products(fourth, bytes + i + 3 * kLanes, values + i + 3 * kLanes);
  }
  const Floats all = (first + second) + (third + fourth);
  float parts[kLanes];
  std::memcpy(parts, &all, sizeof(parts));
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) parts[lane] += parts[lane + half];
  }
  float sum = parts[0];
  for (; i < count; ++i) sum += values[i] * static_cast<float>(bytes[i]);
  return sum;
}

struct Rows {
  const int8_t* bytes;
  const float* scales;
  const float* features;
  float* scores;  // [batch, vocabulary]
  int64_t batch, vocabulary, width;
};

[[gnu::always_inline]] inline void score_rows(const Rows& rows, int64_t first, int64_t last) {
  for (int64_t token = first; token < last; ++token) {
    for (int64_t text = 0; text < rows.batch; ++text) {
      rows.scores[text * rows.vocabulary + token] =
          rows.scales[token] *
          dot(rows.bytes + token * rows.width, rows.features + text * rows.width, rows.width);
    }
  }
}

using ScoreRows = void (*)(const Rows&, int64_t, int64_t);

void score_rows_anywhere(const Rows& rows, int64_t first, int64_t last) {
  score_rows(rows, first, last);
}

#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void score_rows_avx2(const Rows& rows, int64_t first, int64_t last) {
  score_rows(rows, first, last);
}
[[gnu::target("avx512f,avx512bw,avx512vl,fma")]] void score_rows_avx512(const Rows& rows,
                                                                        int64_t first,
                                                                        int64_t last) {
  score_rows(rows, first, last);
}
#endif

ScoreRows fastest_way() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return score_rows_avx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return score_rows_avx2;
#endif
  return score_rows_anywhere;
}

// By how much a score by bytes may be wrong, for scale 1: half a step for each element, and the
// rounding of at most `width` sums in float32 of terms up to 127 steps.
double bound_of(const float* features, int64_t width) {
  double sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += std::abs(static_cast<double>(features[i]));
  constexpr double kRounding = std::numeric_limits<float>::epsilon();
  return sum * (0.5 + 2 * kMostByte * kRounding * static_cast<double>(width));
}

}  // namespace

bool BestToken::fits(const at::Tensor& matrix, int64_t batch, int64_t steps) {
  return matrix.defined() && matrix.device().is_cpu() && matrix.scalar_type() == at::kFloat &&
         matrix.is_contiguous() && matrix.numel() >= kLeastElements && batch <= kMostTexts &&
         steps >= kLeastSteps;
}

BestToken::BestToken(const at::Tensor& matrix)
    : matrix_(matrix.detach()),
      bytes_(at::empty(matrix.sizes(), at::kChar)),
      scales_(at::empty({matrix.size(0)}, at::kFloat)) {
  const int64_t width = matrix.size(1);
  const auto* values = matrix_.data_ptr<float>();
  auto* bytes = bytes_.data_ptr<int8_t>();
  auto* scales = scales_.data_ptr<float>();
  at::parallel_for(0, matrix.size(0), kRowsOfAThread, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* from = values + row * width;
      int8_t* to = bytes + row * width;
      float largest = 0;
      bool numbers = true;
      for (int64_t i = 0; i < width; ++i) {
        largest = std::max(largest, std::abs(from[i]));
        numbers = numbers && std::isfinite(from[i]);
      }
      scales[row] = numbers ? largest / kMostByte : std::numeric_limits<float>::quiet_NaN();
      const float steps = largest > 0 ? kMostByte / largest : 0;
      for (int64_t i = 0; i < width; ++i) {
        // The limits also catch what is not a number; such a row has no scale that excludes it.
        const float scaled = std::min(std::max(-kMostByte, from[i] * steps), kMostByte);
        to[i] = static_cast<int8_t>(scaled + (scaled < 0 ? -0.5F : 0.5F));
      }
    }
  });
}

int64_t BestToken::choose_one(const float* features, const float* scores,
                              const std::vector<int64_t>& forbidden) const {
  const int64_t vocabulary = matrix_.size(0);
  const int64_t width = matrix_.size(1);
  const auto* scales = scales_.data_ptr<float>();
  const auto* values = matrix_.data_ptr<float>();
  const double bound = bound_of(features, width);
  const auto allowed = [&](int64_t token) { return std::ranges::count(forbidden, token) == 0; };
  double least = -std::numeric_limits<double>::infinity();
  for (int64_t token = 0; token < vocabulary; ++token) {
    const double surely = scores[token] - bound * scales[token];
    if (surely > least && allowed(token)) least = surely;
  }
  int64_t best = -1;
  double most = -std::numeric_limits<double>::infinity();
  for (int64_t token = 0; token < vocabulary; ++token) {
    if (scores[token] + bound * scales[token] < least || !allowed(token)) continue;
    const float* row = values + token * width;
    double score = 0;
    for (int64_t i = 0; i < width; ++i) score += static_cast<double>(row[i]) * features[i];
    if (score > most) {
      most = score;
      best = token;
    }
  }
  return best;
}

at::Tensor BestToken::choose(const at::Tensor& features,
                             const std::vector<int64_t>& forbidden) const {
  static const ScoreRows way = fastest_way();
  const at::Tensor rows = features.to(at::kFloat).contiguous();
  const int64_t batch = rows.size(0);
  const int64_t vocabulary = matrix_.size(0);
  at::Tensor scores = at::empty({batch, vocabulary}, at::kFloat);
  const Rows all{.bytes = bytes_.data_ptr<int8_t>(),
                 .scales = scales_.data_ptr<float>(),
                 .features = rows.data_ptr<float>(),
                 .scores = scores.data_ptr<float>(),
                 .batch = batch,
                 .vocabulary = vocabulary,
                 .width = matrix_.size(1)};
  at::parallel_for(0, vocabulary, kRowsOfAThread,
                   [&](int64_t begin, int64_t end) { way(all, begin, end); });
  at::Tensor tokens = at::empty({batch}, at::kLong);
  for (int64_t text = 0; text < batch; ++text) {
    int64_t token =
        choose_one(all.features + text * all.width, all.scores + text * vocabulary, forbidden);
    // Values that are not numbers leave nothing to compare: whatever argmax makes of them.
    if (token < 0) token = at::mv(matrix_, rows[text]).argmax().item<int64_t>();
    tokens.data_ptr<int64_t>()[text] = token;
  }
  return tokens;
}

}  // namespace accelerate::transformers

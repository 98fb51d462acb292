#include "data/byte_scaling.h"

#include <numeric>

// Division is several times slower than multiplication in vector units. A product with the
// reciprocal, put right by one fused multiply-add of its own error, gives the same float; whether
// it does for this mean and stddev is checked for all 256 bytes before the path is used.
#if defined(__x86_64__)
#define ACCELERATE_FMA_TARGET __attribute__((target("avx2,fma")))
#else
#define ACCELERATE_FMA_TARGET
#endif

namespace accelerate {
namespace {

bool processor_has_fma() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#elif defined(__aarch64__)
  return true;
#else
  return false;
#endif
}

// Without the macro's target the calls of fma would not become instructions, nor the loop vectors.
ACCELERATE_FMA_TARGET void scale_fast(const uint8_t* __restrict bytes, size_t count, float mean,
                                      float stddev, float* __restrict out) {
  constexpr float kLevels = 255.0F;
  constexpr float kPerLevel = 1.0F / kLevels;
  const float per_stddev = 1.0F / stddev;
  for (size_t i = 0; i < count; ++i) {
    const auto level = static_cast<float>(bytes[i]);
    float unit = level * kPerLevel;
    unit = __builtin_fmaf(__builtin_fmaf(-unit, kLevels, level), kPerLevel, unit);
    const float centred = unit - mean;
    const float scaled = centred * per_stddev;
    out[i] = __builtin_fmaf(__builtin_fmaf(-scaled, stddev, centred), per_stddev, scaled);
  }
}

}  // namespace

ByteScaling::ByteScaling(float mean, float stddev) : mean_(mean), stddev_(stddev) {
  std::array<uint8_t, 256> bytes{};
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  for (const uint8_t byte : bytes) {
    const float unit = static_cast<float>(byte) / 255.0F;
    table_[byte] = (unit - mean) / stddev;
  }
  if (!processor_has_fma()) return;
  std::array<float, 256> fast{};
  scale_fast(bytes.data(), bytes.size(), mean_, stddev_, fast.data());
  has_vector_path_ = fast == table_;
}

void ByteScaling::apply(const uint8_t* bytes, size_t count, float* out) const {
  if (has_vector_path_) return scale_fast(bytes, count, mean_, stddev_, out);
  for (size_t i = 0; i < count; ++i) out[i] = table_[bytes[i]];
}

}  // namespace accelerate

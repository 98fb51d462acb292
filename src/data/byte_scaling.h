// Pixels to floats: the whole batch in one pass.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace accelerate {

// Computes (byte / 255 - mean) / stddev in float32, exactly as these three operations one after the
// other round it, several pixels an instruction where the processor can. Immutable.
class ByteScaling {
 public:
  ByteScaling(float mean, float stddev);

  void apply(const uint8_t* bytes, size_t count, float* out) const;

 private:
  float mean_;
  float stddev_;
  std::array<float, 256> table_{};  // the result of each byte
  bool has_vector_path_ = false;
};

}  // namespace accelerate

// The tensors of a model by name, shape and type, without their values.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "files/safetensors/tensor_dtype.h"

namespace accelerate::estimate {

struct Parameter {
  std::string name{};
  std::vector<uint64_t> shape{};
  files::TensorDtype dtype = files::TensorDtype::kF32;

  uint64_t elements() const;
  // Numbers that a model computes with may be held in any type; counters, masks and what is
  // quantized already stay as they are, and are not trained.
  bool is_float() const;
};

// Lists the parameters of a model the way its modules own them.
class ParameterList {
 public:
  // Throws DataError if the tensor would be too large for any machine, or is one of more than
  // any model has. Sizes are positive.
  void add(const std::string& name, std::initializer_list<int64_t> shape);
  void linear(const std::string& name, int64_t in, int64_t out, bool has_bias = true);
  void embedding(const std::string& name, int64_t rows, int64_t width);
  void layer_norm(const std::string& name, int64_t width);
  void rms_norm(const std::string& name, int64_t width);

  std::vector<Parameter> take() { return std::move(parameters_); }

 private:
  std::vector<Parameter> parameters_;
};

// The part that is never split over devices, and so the least that must be in memory at a time: all
// of a numbered block ("model.layers.3"), or a module outside of such blocks ("embed_tokens").
std::string layer_of(const std::string& parameter);

struct ModelSizes {
  uint64_t floats = 0;       // elements that may be held in any type
  uint64_t fixed_bytes = 0;  // of tensors that keep their type
  // Of the layer that is largest.
  std::string largest_layer{};
  uint64_t largest_floats = 0;
  uint64_t largest_fixed_bytes = 0;
};

// Throws ConfigError if the model is too large for any machine.
ModelSizes measure(std::span<const Parameter> parameters);

}  // namespace accelerate::estimate

#include "estimate/parameter_list.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <tuple>
#include <utility>

#include "accelerate/errors.h"
#include "files/safetensors/safetensors_header.h"

namespace accelerate::estimate {
namespace {

using files::TensorDtype;

// Sums over all tensors of a model, times the bytes that training needs of each, stay inside of 64
// bits.
constexpr uint64_t kMostElements = uint64_t{1} << 40;
constexpr uint64_t kMostParameterBytes = uint64_t{1} << 58;
// More than a model of a thousand layers has.
constexpr size_t kMostParameters = 1 << 17;

bool is_number(std::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

}  // namespace

uint64_t Parameter::elements() const {
  uint64_t product = 1;
  for (const uint64_t size : shape) product *= size;
  return product;
}

bool Parameter::is_float() const {
  return dtype == TensorDtype::kF16 || dtype == TensorDtype::kBF16 || dtype == TensorDtype::kF32 ||
         dtype == TensorDtype::kF64;
}

void ParameterList::add(const std::string& name, std::initializer_list<int64_t> shape) {
  if (parameters_.size() == kMostParameters) {
    throw DataError(
        {.what = "the model would have more than " + std::to_string(kMostParameters) + " tensors",
         .hint = "check the numbers of layers in the configuration of the model"});
  }
  Parameter parameter{.name = name, .shape = {shape.begin(), shape.end()}};
  const auto bytes = files::tensor_bytes(parameter.dtype, parameter.shape);
  if (!bytes || *bytes > 4 * kMostElements) {
    throw DataError({.what = "the parameter " + name + " would be too large for any machine",
                     .hint = "check the sizes in the configuration of the model"});
  }
  parameters_.push_back(std::move(parameter));
}

void ParameterList::linear(const std::string& name, int64_t in, int64_t out, bool has_bias) {
  add(name + ".weight", {out, in});
  if (has_bias) add(name + ".bias", {out});
}

void ParameterList::embedding(const std::string& name, int64_t rows, int64_t width) {
  add(name + ".weight", {rows, width});
}

void ParameterList::layer_norm(const std::string& name, int64_t width) {
  add(name + ".weight", {width});
  add(name + ".bias", {width});
}

void ParameterList::rms_norm(const std::string& name, int64_t width) {
  add(name + ".weight", {width});
}

std::string layer_of(const std::string& parameter) {
  size_t begin = 0;
  while (true) {
    const size_t dot = parameter.find('.', begin);
    const size_t end = std::min(dot, parameter.size());
    if (is_number(std::string_view(parameter).substr(begin, end - begin))) {
      return parameter.substr(0, end);
    }
    if (dot == std::string::npos) break;
    begin = dot + 1;
  }
  const size_t last = parameter.rfind('.');
  return last == std::string::npos ? parameter : parameter.substr(0, last);
}

ModelSizes measure(std::span<const Parameter> parameters) {
  ModelSizes sizes;
  std::map<std::string, std::pair<uint64_t, uint64_t>> layers;  // floats, fixed bytes
  for (const Parameter& parameter : parameters) {
    auto& [floats, fixed_bytes] = layers[layer_of(parameter.name)];
    if (parameter.is_float()) {
      floats += parameter.elements();
      sizes.floats += parameter.elements();
    } else {
      const uint64_t bytes = files::tensor_bytes(parameter.dtype, parameter.shape).value_or(0);
      fixed_bytes += bytes;
      sizes.fixed_bytes += bytes;
    }
  }
  if (sizes.floats > kMostParameterBytes / 4 || sizes.fixed_bytes > kMostParameterBytes) {
    throw ConfigError({.what = "the model is too large for any machine"});
  }
  uint64_t most = 0;
  for (const auto& [name, size] : layers) {
    const uint64_t bytes = 4 * size.first + size.second;
    if (bytes <= most) continue;
    most = bytes;
    sizes.largest_layer = name;
    std::tie(sizes.largest_floats, sizes.largest_fixed_bytes) = size;
  }
  return sizes;
}

}  // namespace accelerate::estimate

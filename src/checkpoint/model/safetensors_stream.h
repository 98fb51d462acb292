// Tensors of torch as the bytes of a .safetensors file.
#pragma once

#include <c10/core/ScalarType.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "accelerate/safetensors.h"
#include "files/durable/byte_sink.h"
#include "files/safetensors/tensor_dtype.h"

namespace accelerate::checkpoint {

// None where the other side has no such type.
std::optional<files::TensorDtype> file_dtype(at::ScalarType dtype);
std::optional<at::ScalarType> torch_dtype(files::TensorDtype dtype);

// Gives the tensor of a name when its bytes are to be written.
using TensorValue = std::function<at::Tensor(const std::string& name)>;

// Writes a whole file to the sink; begin_part() is called with the name of each tensor before its
// bytes, and before that the header belongs to no part. What save_safetensors() promises of shared
// tensors, copies and errors holds here. With `value_of` the tensors are those that it gives, of
// the same types and shapes; it is asked in the order of safetensors_order().
void write_safetensors(files::ByteSink& sink, const NamedTensors& tensors,
                       const SafetensorsMetadata& metadata = {}, const TensorValue& value_of = {});
// The names whose bytes such a file has, in their order.
std::vector<std::string> safetensors_order(const NamedTensors& tensors,
                                           const SafetensorsMetadata& metadata = {});

// The bytes that write_safetensors() would write, without looking at the data.
uint64_t safetensors_file_size(const NamedTensors& tensors,
                               const SafetensorsMetadata& metadata = {});

}  // namespace accelerate::checkpoint

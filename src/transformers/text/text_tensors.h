// Lists of ids as tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>

#include "accelerate/tokenizers.h"
#include "accelerate/transformers/model.h"

namespace accelerate::transformers {

// UsageError: there is nothing to pad with.
[[noreturn]] void throw_no_pad_token(const std::string& where);

// Encodings of one length as input_ids, attention_mask and, if wanted, token_type_ids. Throws
// DataError if there is none or they differ in length; `can_pad` is for what to do about it.
ModelInputs tensors_of(std::span<const Encoding> encodings, bool with_type_ids, bool can_pad);

// Ids as a contiguous int64 tensor on the CPU. Throws UsageError unless they are whole numbers and
// have that many dimensions.
at::Tensor ids_on_cpu(const at::Tensor& ids, int64_t dimensions);

}  // namespace accelerate::transformers

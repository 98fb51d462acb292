#include "files/pieces/pieced_model.h"

#include <algorithm>
#include <span>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "files/pieces/float_conversion.h"
#include "files/safetensors/safetensors_header.h"

namespace accelerate::files {
namespace {

constexpr uint64_t kCopyBytes = uint64_t{4} << 20;  // a multiple of the size of every element

}  // namespace

void write_pieces(const PiecedModel& model, const PiecedTensor& tensor, ByteSink& sink) {
  for_each_run(tensor, [&](size_t file, uint64_t offset, uint64_t bytes) {
    const MappedFile& mapped = *model.mappings[file];
    for (uint64_t done = 0; done < bytes; done += kCopyBytes) {
      const uint64_t size = std::min(kCopyBytes, bytes - done);
      const auto block = mapped.bytes().subspan(offset + done, size);
      if (tensor.stored) {
        const std::vector<float> numbers = to_floats(*tensor.stored, block);
        sink.write(std::as_bytes(std::span(numbers)));
      } else {
        sink.write(block);
      }
      mapped.forget(offset + done, size);
    }
  });
  // Rows of a block may be less than a page each, of which none went so far.
  for (const TensorPiece& piece : tensor.pieces) {
    const auto bytes = tensor_bytes(tensor.stored_dtype(), piece.shape);
    if (bytes && *bytes > 0) model.mappings[piece.file]->forget(piece.offset, *bytes);
  }
}

void require_whole_tensors(const PiecedModel& model) {
  for (const PiecedTensor& tensor : model.tensors) {
    const bool has_size = tensor_bytes(tensor.dtype, tensor.shape).has_value();
    const std::string problem = has_size ? tiling_problem(tensor) : "it has too many elements";
    if (problem.empty()) continue;
    throw CheckpointError({.what = "tensor " + in_quotes(tensor.name) + " is not whole: " + problem,
                           .where = model.folder.string(),
                           .hint = "use another checkpoint"});
  }
}

}  // namespace accelerate::files

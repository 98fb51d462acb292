// A file of torch.save, or a pickle alone, is refused with a CheckpointError, or holds plain values
// whose tensors lie inside the bytes that are there.
#include <span>

#include "accelerate/errors.h"
#include "check.h"
#include "files/pickle/pickle_archive.h"
#include "files/pickle/pickle_dtypes.h"
#include "files/pickle/pickle_reader.h"

namespace {

using namespace accelerate::files;

void check_references(const PickleDocument& document) {
  const auto check = [&](PickleIndex index) { FUZZ_CHECK(index < document.values.size()); };
  check(document.root);
  for (const PickleValue& value : document.values) {
    if (const auto* sequence = std::get_if<PickleSequence>(&value)) {
      for (const PickleIndex item : sequence->items) check(item);
    }
    if (const auto* dict = std::get_if<PickleDict>(&value)) {
      for (const auto& [key, held] : dict->entries) {
        check(key);
        check(held);
      }
    }
    if (const auto* tensor = std::get_if<PickleBox<PickleTensor>>(&value))
      check((*tensor)->storage);
  }
}

// Reads the first and the last element of every tensor: the address sanitizer looks at it.
void touch_tensors(const PickleArchive& archive) {
  for (const PickleValue& value : archive.document().values) {
    const auto* box = std::get_if<PickleBox<PickleTensor>>(&value);
    if (box == nullptr) continue;
    const PickleTensor& tensor = **box;
    int64_t last = tensor.offset;
    bool is_empty = false;
    for (size_t i = 0; i < tensor.sizes.size(); ++i) {
      is_empty |= tensor.sizes[i] == 0;
      last += (tensor.sizes[i] - 1) * tensor.strides[i];
    }
    if (is_empty) continue;
    const auto& storage =
        *std::get<PickleBox<PickleStorage>>(archive.document().at(tensor.storage));
    const size_t bytes = find_pickle_dtype(tensor.dtype)->bytes;
    const auto memory = archive.bytes(storage);
    const volatile std::byte first_byte = memory[static_cast<size_t>(tensor.offset) * bytes];
    const volatile std::byte last_byte = memory[(static_cast<size_t>(last) + 1) * bytes - 1];
    FUZZ_CHECK((static_cast<size_t>(last) + 1) * bytes <= memory.size());
    static_cast<void>(first_byte);
    static_cast<void>(last_byte);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  try {
    if (size > 0 && data[0] == 'P') {
      const PickleArchive archive(file, "file");
      check_references(archive.document());
      touch_tensors(archive);
    } else {
      check_references(read_pickle(file, "file"));
    }
  } catch (const accelerate::CheckpointError& error) {
    FUZZ_CHECK(!error.message().empty() && error.where() == "file");
  }
  return 0;
}

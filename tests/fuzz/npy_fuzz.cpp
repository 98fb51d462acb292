// A .npy file is refused with a DataError, or its rows are exactly the bytes that are there.
#include <span>

#include "accelerate/errors.h"
#include "check.h"
#include "data/npy_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  try {
    const accelerate::NpyLayout layout = accelerate::parse_npy(file, "file");
    FUZZ_CHECK(!layout.shape.empty());
    FUZZ_CHECK(layout.offset <= size);
    FUZZ_CHECK(layout.element_bytes > 0 && layout.element_bytes <= 8);
    FUZZ_CHECK(layout.row_bytes % layout.element_bytes == 0);
    const auto rows = static_cast<size_t>(layout.shape[0]);
    FUZZ_CHECK(layout.row_bytes == 0 || rows <= size);
    FUZZ_CHECK(layout.offset + rows * layout.row_bytes == size);
  } catch (const accelerate::DataError& error) {
    FUZZ_CHECK(!error.message().empty() && error.where().starts_with("file, byte "));
  }
  return 0;
}

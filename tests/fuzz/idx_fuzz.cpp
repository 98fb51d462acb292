// An IDX file is refused with a DataError, or its header describes exactly the bytes that are
// there.
#include "accelerate/errors.h"
#include "check.h"
#include "data/idx_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const accelerate::IdxHeader header = accelerate::parse_idx({data, size}, "file");
    FUZZ_CHECK(header.shape.size() == header.magic.dimensions);
    FUZZ_CHECK(header.magic.header_bytes() + header.data_bytes == size);
    size_t product = header.magic.element_bytes();
    for (const int64_t extent : header.shape) product *= static_cast<size_t>(extent);
    FUZZ_CHECK(product == header.data_bytes);
  } catch (const accelerate::DataError& error) {
    FUZZ_CHECK(!error.message().empty() && error.where() == "file");
  }
  return 0;
}

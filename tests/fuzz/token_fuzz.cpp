// A token file is refused with an error, or all its tokens lie inside the bytes. The first byte
// says whether there is a header and how wide tokens are, the second the offset without a header.
#include <span>

#include "accelerate/errors.h"
#include "check.h"
#include "data/token_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto file = std::as_bytes(std::span(data + 2, size - 2));
  const bool has_header = data[0] % 3 == 0;
  try {
    const accelerate::TokenLayout layout =
        has_header ? accelerate::parse_token_header(file, "file")
                   : accelerate::plain_token_layout(file.size(), data[0] % 3 == 1 ? 2 : 4, data[1],
                                                    "file");
    FUZZ_CHECK(layout.token_bytes == 2 || layout.token_bytes == 4);
    FUZZ_CHECK(layout.offset % layout.token_bytes == 0 && layout.offset <= file.size());
    FUZZ_CHECK(layout.tokens == (file.size() - layout.offset) / layout.token_bytes);
    FUZZ_CHECK((file.size() - layout.offset) % layout.token_bytes == 0);
  } catch (const accelerate::DataError& error) {
    FUZZ_CHECK(!error.message().empty() && error.where().starts_with("file, byte "));
  } catch (const accelerate::UsageError&) {
    FUZZ_CHECK(!has_header && data[1] % 4 != 0);
  }
  return 0;
}

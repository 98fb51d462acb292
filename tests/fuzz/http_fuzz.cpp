// The head of a request is waited for, refused with a status, or read within what it says.
#include "check.h"
#include "monitor/server/http_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using accelerate::monitor::ParsedRequest;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const ParsedRequest parsed = accelerate::monitor::parse_request(bytes);
  FUZZ_CHECK(parsed.consumed <= size);
  if (parsed.refusal != 0) {
    FUZZ_CHECK(parsed.refusal >= 400 && parsed.refusal < 600);
    return 0;
  }
  if (parsed.consumed == 0) {
    FUZZ_CHECK(size < accelerate::monitor::kMostHeadBytes);
    return 0;
  }
  FUZZ_CHECK(bytes.substr(0, parsed.consumed).ends_with("\r\n\r\n"));
  FUZZ_CHECK(parsed.request.path.starts_with('/'));
  FUZZ_CHECK(parsed.request.headers.size() <= accelerate::monitor::kMostHeaders);
  for (const char c : parsed.request.path) FUZZ_CHECK(static_cast<unsigned char>(c) >= ' ');
  (void)parsed.request.cookie("token");
  // What comes behind a head changes nothing of it.
  const auto alone = accelerate::monitor::parse_request(bytes.substr(0, parsed.consumed));
  FUZZ_CHECK(alone.refusal == 0 && alone.consumed == parsed.consumed &&
             alone.request.query == parsed.request.query);
  return 0;
}

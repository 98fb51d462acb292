// The file of a run is read as far as it is whole, in pieces as at once, and whatever it says makes
// a view of bounded size. The checksum is mended, so that what is behind it is reached.
#include <cstring>
#include <string>

#include "check.h"
#include "monitor/view/run_view.h"
#include "run_record/record_reader.h"

namespace {

using namespace accelerate::run_record;  // NOLINT(google-build-using-namespace): a small program

std::string mended(std::string_view data) {
  std::string bytes(kMagic);
  bytes += data;
  for (size_t at = kMagic.size(); at + kFrameBytes <= bytes.size();) {
    uint16_t size = 0;
    std::memcpy(&size, bytes.data() + at + 4, sizeof size);
    if (at + kFrameBytes + size > bytes.size()) break;
    const std::string_view all = bytes;
    const uint32_t check = checksum(all.substr(at + 4, 4), all.substr(at + kFrameBytes, size));
    std::memcpy(bytes.data() + at, &check, sizeof check);
    at += kFrameBytes + size;
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes = mended({reinterpret_cast<const char*>(data), size});
  RecordParser whole;
  whole.add(bytes);
  accelerate::monitor::RunView view;
  size_t count = 0;
  while (const auto record = whole.next()) {
    ++count;
    view.take(static_cast<int>(count % 3), *record);
    std::string again;
    encode(*record, again);
    FUZZ_CHECK(again.size() >= kFrameBytes);
  }
  FUZZ_CHECK(whole.position() <= bytes.size());
  FUZZ_CHECK(view.ranks().size() <= 4096);
  for (const auto& [name, series] : view.values()) {
    FUZZ_CHECK(series.points().size() <= accelerate::monitor::Series::kMostPoints);
  }
  RecordParser pieces;
  size_t same = 0;
  for (size_t at = 0; at < bytes.size(); at += 7) {
    pieces.add(std::string_view(bytes).substr(at, 7));
    while (pieces.next()) ++same;
  }
  FUZZ_CHECK(same == count && pieces.is_damaged() == whole.is_damaged());
  return 0;
}

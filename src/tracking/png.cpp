#include "tracking/png.h"

#include <zlib.h>

#include <array>
#include <cstdint>
#include <string_view>

namespace accelerate::tracking {
namespace {

void append_big_endian(std::string& bytes, uint32_t number) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes.push_back(
        static_cast<char>(static_cast<uint8_t>(number >> static_cast<unsigned>(shift))));
  }
}

void append_chunk(std::string& png, std::string_view kind, std::string_view data) {
  append_big_endian(png, static_cast<uint32_t>(data.size()));
  const size_t begin = png.size();
  png += kind;
  png += data;
  const auto* checked = reinterpret_cast<const Bytef*>(png.data() + begin);
  append_big_endian(
      png, static_cast<uint32_t>(crc32(0, checked, static_cast<uInt>(png.size() - begin))));
}

std::string deflated(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string result(size, '\0');
  // Fast: pictures of a run are many, and looked at rarely.
  constexpr int kLevel = 3;
  const int status = compress2(reinterpret_cast<Bytef*>(result.data()), &size,
                               reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), kLevel);
  if (status != Z_OK) {
    throw TrackerError({.what = "the image could not be compressed: not enough memory",
                        .where = "log_images",
                        .hint = "log smaller images"});
  }
  result.resize(size);
  return result;
}

}  // namespace

void require_whole(const TrackedImage& image) {
  constexpr int64_t kMostPixels = 1 << 15;
  const bool fits = image.height > 0 && image.width > 0 && image.height <= kMostPixels &&
                    image.width <= kMostPixels && image.channels >= 1 && image.channels <= 4;
  if (fits &&
      static_cast<int64_t>(image.pixels.size()) == image.height * image.width * image.channels) {
    return;
  }
  throw TrackerError({.what = "image \"" + image.name + "\" of " + std::to_string(image.height) +
                              " x " + std::to_string(image.width) + " pixels with " +
                              std::to_string(image.channels) + " channels has " +
                              std::to_string(image.pixels.size()) + " bytes",
                      .where = "log_images",
                      .hint = "give a byte for each channel of each pixel, 1 to 4 channels, at "
                              "most 32768 pixels a side"});
}

std::string png_of(const TrackedImage& image) {
  require_whole(image);
  const auto row_bytes = static_cast<size_t>(image.width) * static_cast<size_t>(image.channels);
  const auto* pixels = reinterpret_cast<const char*>(image.pixels.data());
  std::string rows;
  rows.reserve((row_bytes + 1) * static_cast<size_t>(image.height));
  for (int64_t row = 0; row < image.height; ++row) {
    rows.push_back('\0');  // no filter
    rows.append(pixels + static_cast<size_t>(row) * row_bytes, row_bytes);
  }
  constexpr std::array<char, 4> kColourTypes = {0, 4, 2, 6};  // by the number of channels
  std::string head;
  append_big_endian(head, static_cast<uint32_t>(image.width));
  append_big_endian(head, static_cast<uint32_t>(image.height));
  head += {8, kColourTypes[static_cast<size_t>(image.channels - 1)], 0, 0, 0};
  std::string png = "\x89PNG\r\n\x1a\n";
  append_chunk(png, "IHDR", head);
  append_chunk(png, "IDAT", deflated(rows));
  append_chunk(png, "IEND", {});
  return png;
}

}  // namespace accelerate::tracking

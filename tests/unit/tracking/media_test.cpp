// Pictures, histograms and names of files.
#include <gmock/gmock.h>
#include <zlib.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "golden/sha256.h"
#include "support/error_of.h"
#include "tracking/crc32c.h"
#include "tracking/histogram.h"
#include "tracking/http_client.h"
#include "tracking/png.h"
#include "tracking/run_folder.h"
#include "tracking/sha256.h"
#include "unit/tracking/event_file_reading.h"

namespace accelerate::tracking {
namespace {

using testing::ElementsAre;

uint32_t big_endian_at(const std::string& bytes, size_t at) {
  uint32_t number = 0;
  for (size_t i = 0; i < 4; ++i) number = number << 8U | static_cast<uint8_t>(bytes.at(at + i));
  return number;
}

// The bytes of the rows, each after its filter, which must be none.
std::string pixels_of_png(const std::string& png, size_t row_bytes, int& colour_type) {
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  std::string packed;
  size_t at = 8;
  std::string kind;
  while (kind != "IEND") {
    const uint32_t length = big_endian_at(png, at);
    kind = png.substr(at + 4, 4);
    const std::string data = png.substr(at + 8, length);
    const std::string checked = kind + data;
    EXPECT_EQ(big_endian_at(png, at + 8 + length),
              crc32(0, reinterpret_cast<const Bytef*>(checked.data()),
                    static_cast<uInt>(checked.size())));
    if (kind == "IHDR") colour_type = data[9];
    if (kind == "IDAT") packed += data;
    at += 12 + length;
  }
  EXPECT_EQ(at, png.size());
  std::string rows(1 << 16, '\0');
  uLongf size = rows.size();
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(rows.data()), &size,
                       reinterpret_cast<const Bytef*>(packed.data()), packed.size()),
            Z_OK);
  rows.resize(size);
  std::string pixels;
  for (size_t row = 0; row < rows.size(); row += row_bytes + 1) {
    EXPECT_EQ(rows[row], 0);
    pixels += rows.substr(row + 1, row_bytes);
  }
  return pixels;
}

TEST(Png, HoldsThePixelsOfEveryKindOfImage) {
  const int colour_types[] = {0, 4, 2, 6};
  for (int channels = 1; channels <= 4; ++channels) {
    TrackedImage image{.name = "x", .height = 3, .width = 5, .channels = channels};
    for (int i = 0; i < 15 * channels; ++i) image.pixels.push_back(static_cast<uint8_t>(i * 7));
    int colour_type = -1;
    const std::string pixels =
        pixels_of_png(png_of(image), static_cast<size_t>(5 * channels), colour_type);
    EXPECT_EQ(pixels, std::string(image.pixels.begin(), image.pixels.end()));
    EXPECT_EQ(colour_type, colour_types[channels - 1]);
  }
}

TEST(Png, RefusesAnImageThatLacksPixels) {
  const TrackedImage image{.name = "x", .height = 2, .width = 2, .channels = 3, .pixels = {1, 2}};
  EXPECT_THAT(test::error_text<TrackerError>([&] { png_of(image); }),
              testing::HasSubstr("image \"x\" of 2 x 2 pixels with 3 channels has 2 bytes"));
}

TEST(Histograms, CountEveryFiniteValueOnce) {
  const std::vector<double> values = {-2, -1e-13, 0, 0, 0.5, 1e30, std::nan(""), HUGE_VAL};
  const TrackedHistogram histogram = histogram_of("w", values);
  EXPECT_EQ(histogram.count, 6);
  EXPECT_EQ(histogram.min, -2);
  EXPECT_EQ(histogram.max, 1e30);
  EXPECT_EQ(std::accumulate(histogram.counts.begin(), histogram.counts.end(), 0.0), 6);
  EXPECT_EQ(histogram.counts.size(), histogram.limits.size());
  EXPECT_TRUE(std::is_sorted(histogram.limits.begin(), histogram.limits.end()));
  double below = 0;
  for (size_t i = 0; i < histogram.limits.size() && histogram.limits[i] < 0.5; ++i) {
    below += histogram.counts[i];
  }
  EXPECT_EQ(below, 4) << "-2, -1e-13 and the zeros";
  EXPECT_EQ(histogram_of("none", {}).counts, std::vector<double>{0});
}

TEST(Sha256, IsTheOneThatOthersCompute) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  std::string text;
  for (int length = 0; length < 200; ++length) {
    ASSERT_EQ(sha256(text), test::sha256_of(text)) << length;
    text += static_cast<char>(length * 31);
  }
}

TEST(Crc32c, EqualsTheOneBitByBit) {
  std::string text;
  for (int length = 0; length < 100; ++length) {
    ASSERT_EQ(masked_crc32c(text), test::slow_masked_crc32c(text)) << length;
    text += static_cast<char>(length * 37);
  }
}

TEST(NamesOfFiles, NeverLeaveTheFolder) {
  EXPECT_EQ(file_name_of("train/loss"), "train_loss");
  EXPECT_EQ(file_name_of("../../etc"), ".._.._etc");
  EXPECT_EQ(file_name_of(".."), "_..");
  EXPECT_EQ(file_name_of(""), "_");
  EXPECT_EQ(file_name_of("é b"), "é_b");
}

TEST(Tables, AreObjectsWithColumnsAndData) {
  EXPECT_EQ(table_json({.name = "t", .columns = {"a", "b"}, .rows = {{1, "x"}, {0.5, true}}}),
            R"({"columns":["a","b"],"data":[[1,"x"],[0.5,true]]})");
}

}  // namespace
}  // namespace accelerate::tracking

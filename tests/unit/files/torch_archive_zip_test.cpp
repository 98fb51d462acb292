// Zip files as torch.save writes them: written, read, and refused where they are not sound.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accelerate/errors.h"
#include "files/pickle/zip_reader.h"
#include "unit/files/torch_archive_bytes.h"

namespace accelerate::files {
namespace {

using test::bytes_of;
using test::number_bytes;
using test::offset_of_record;
using test::patched;
using ::testing::HasSubstr;

// Three entries: "a/first" holds "0123456789", "a/empty" nothing, "a/last" "xyz".
std::string small_zip() {
  test::StringSink sink;
  ZipWriter zip(sink);
  zip.add_entry("a/first", "0123456789");
  zip.add_entry("a/empty", "");
  zip.add_entry("a/last", "xyz");
  zip.finish();
  return sink.text;
}

std::string zip_refusal(const std::string& zip) {
  try {
    const ZipReader reader(bytes_of(zip), "some.zip");
    for (const ZipEntry& entry : reader.entries()) reader.check_crc(entry);
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.where(), "some.zip");
    return error.message();
  }
  return "accepted";
}

std::string text_of(const ZipReader& zip, const char* name) {
  const ZipEntry* entry = zip.find(name);
  if (entry == nullptr) return "missing";
  const auto bytes = zip.bytes(*entry);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Zip, EntriesComeBackAsTheyWereWritten) {
  const std::string zip = small_zip();
  const ZipReader reader(bytes_of(zip), "some.zip");
  ASSERT_EQ(reader.entries().size(), 3U);
  EXPECT_EQ(text_of(reader, "a/first"), "0123456789");
  EXPECT_EQ(text_of(reader, "a/empty"), "");
  EXPECT_EQ(text_of(reader, "a/last"), "xyz");
  EXPECT_EQ(reader.find("a/other"), nullptr);
  EXPECT_EQ(zip_refusal(zip), "accepted");
}

TEST(Zip, DataBeginsAtMultiplesOf64Bytes) {
  const std::string zip = small_zip();
  const ZipReader reader(bytes_of(zip), "some.zip");
  for (const ZipEntry& entry : reader.entries()) {
    EXPECT_EQ(entry.offset % 64, 0U) << entry.name;
  }
}

TEST(Zip, TheSameEntriesGiveTheSameBytes) { EXPECT_EQ(small_zip(), small_zip()); }

TEST(Zip, AFileThatIsCutOffAnywhereIsRefused) {
  const std::string zip = small_zip();
  for (size_t bytes = 0; bytes < zip.size(); ++bytes) {
    EXPECT_NE(zip_refusal(zip.substr(0, bytes)), "accepted") << bytes;
  }
}

TEST(Zip, BytesAfterTheEndAreRefused) {
  EXPECT_THAT(zip_refusal(small_zip() + "x"), HasSubstr("does not end like a zip file"));
}

TEST(Zip, DamagedDataIsNoticedByItsChecksum) {
  const std::string zip = small_zip();
  const size_t data = zip.find("0123456789");
  EXPECT_EQ(zip_refusal(patched(zip, data + 3, "X")),
            "the entry 'a/first' is damaged: its CRC-32 is not the recorded one");
}

TEST(Zip, AFileWithoutAnyChecksumIsAccepted) {
  std::string zip = small_zip();
  for (int i = 0; i < 3; ++i) {
    zip = patched(zip, offset_of_record(zip, zip::kCentralHeader, i) + 16, number_bytes(0U));
  }
  EXPECT_EQ(zip_refusal(zip), "accepted");
}

TEST(Zip, CompressedAndEncryptedEntriesAreRefused) {
  const std::string zip = small_zip();
  const size_t header = offset_of_record(zip, zip::kCentralHeader);
  EXPECT_THAT(zip_refusal(patched(zip, header + 10, number_bytes(uint16_t{8}))),
              HasSubstr("'a/first' is compressed"));
  EXPECT_THAT(zip_refusal(patched(zip, header + 20, number_bytes(9U))),
              HasSubstr("'a/first' is compressed"));
  EXPECT_THAT(zip_refusal(patched(zip, header + 8, number_bytes(uint16_t{1}))),
              HasSubstr("'a/first' is encrypted"));
}

TEST(Zip, EntriesOutsideOfTheFileAreRefused) {
  const std::string zip = small_zip();
  const size_t header = offset_of_record(zip, zip::kCentralHeader, 2);
  const std::string far = patched(zip, header + 42, number_bytes(0x7fffffffU));
  EXPECT_THAT(zip_refusal(far), HasSubstr("'a/last' is not where the directory says"));
  std::string large = patched(zip, header + 20, number_bytes(0x10000U));
  large = patched(large, header + 24, number_bytes(0x10000U));
  EXPECT_THAT(zip_refusal(large), HasSubstr("'a/last' does not lie inside the file"));
}

TEST(Zip, EntriesThatOverlapAreRefused) {
  const std::string zip = small_zip();
  const size_t header = offset_of_record(zip, zip::kCentralHeader);
  const size_t data = ZipReader(bytes_of(zip), "").find("a/first")->offset;
  const uint32_t size =
      static_cast<uint32_t>(ZipReader(bytes_of(zip), "").find("a/last")->offset - data);
  std::string overlapping = patched(zip, header + 20, number_bytes(size));
  overlapping = patched(overlapping, header + 24, number_bytes(size));
  EXPECT_THAT(zip_refusal(overlapping), HasSubstr("'a/first' and 'a/empty' overlap"));
}

TEST(Zip, TwoEntriesOfOneNameAreRefused) {
  test::StringSink sink;
  ZipWriter zip(sink);
  zip.add_entry("same", "1");
  zip.add_entry("same", "2");
  zip.finish();
  EXPECT_THAT(zip_refusal(sink.text), HasSubstr("two of its entries are named 'same'"));
}

TEST(Zip, AnEntryWhoseOwnHeaderHasAnotherNameIsRefused) {
  const std::string zip = small_zip();
  EXPECT_THAT(zip_refusal(patched(zip, zip.find("a/first"), "b/first")),
              HasSubstr("'a/first' contradicts the directory"));
}

TEST(Zip, ADirectoryThatClaimsMoreThanTheFileHoldsIsRefusedBeforeMemoryIsTaken) {
  const std::string zip = small_zip();
  const size_t end = offset_of_record(zip, zip::kZip64End);
  const size_t narrow = offset_of_record(zip, zip::kEnd);
  std::string many = patched(zip, end + 32, number_bytes(uint64_t{1} << 60U));
  many = patched(many, narrow + 8, number_bytes(uint32_t{0xffffffff}));
  EXPECT_THAT(zip_refusal(many), HasSubstr("directory does not lie inside the file"));
  std::string far = patched(zip, end + 48, number_bytes(~uint64_t{0} - 5));
  far = patched(far, narrow + 16, number_bytes(0xffffffffU));
  EXPECT_THAT(zip_refusal(far), HasSubstr("directory does not lie inside the file"));
}

TEST(Zip, EndRecordsThatContradictEachOtherAreRefused) {
  const std::string zip = small_zip();
  const size_t end = offset_of_record(zip, zip::kZip64End);
  EXPECT_THAT(zip_refusal(patched(zip, end + 32, number_bytes(uint64_t{2}))),
              HasSubstr("contradict each other"));
}

TEST(Zip, NumbersOf64BitsInTheDirectoryAreRead) {
  // As for files above 4 GiB: the small numbers say "see the extra field".
  std::string zip = small_zip();
  const size_t header = offset_of_record(zip, zip::kCentralHeader, 2);
  const uint64_t place = ZipReader(bytes_of(zip), "").find("a/last")->header_offset;
  const std::string field = number_bytes(zip::kZip64Field) + number_bytes(uint16_t{24}) +
                            number_bytes(uint64_t{3}) + number_bytes(uint64_t{3}) +
                            number_bytes(place);
  zip = patched(zip, header + 20, number_bytes(~uint64_t{0}));
  zip = patched(zip, header + 30, number_bytes(static_cast<uint16_t>(field.size())));
  zip = patched(zip, header + 42, number_bytes(0xffffffffU));
  zip.insert(header + zip::kCentralHeaderBytes + std::string("a/last").size(), field);
  const size_t end = offset_of_record(zip, zip::kZip64End);
  const auto more = static_cast<uint32_t>(field.size());
  const size_t locator = offset_of_record(zip, zip::kZip64Locator);
  const size_t narrow = offset_of_record(zip, zip::kEnd);
  const auto size = zip::number_at<uint32_t>(bytes_of(zip), narrow + 12) + more;
  zip = patched(zip, end + 40, number_bytes(uint64_t{size}));
  zip = patched(zip, narrow + 12, number_bytes(size));
  zip = patched(zip, locator + 8, number_bytes(uint64_t{end}));
  EXPECT_EQ(text_of(ZipReader(bytes_of(zip), ""), "a/last"), "xyz");
}

TEST(Zip, WritingAnotherNumberOfBytesThanAnnouncedIsAnError) {
  test::StringSink sink;
  ZipWriter zip(sink);
  zip.begin_entry("entry", 2);
  EXPECT_THROW(zip.write(bytes_of("abc")), CheckpointError);
  zip.write(bytes_of("a"));
  EXPECT_THROW(zip.end_entry(), CheckpointError);
}

}  // namespace
}  // namespace accelerate::files

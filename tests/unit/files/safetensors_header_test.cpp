// Headers of safetensors files: what is read, what is refused and with which words.
#include "files/safetensors/safetensors_header.h"

#include <gmock/gmock.h>

#include "unit/files/safetensors_files.h"

namespace accelerate::files {
namespace {

using test::bytes_of;
using test::error_of;
using test::safetensors_file;
using testing::ElementsAre;
using testing::HasSubstr;

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors_header(bytes_of(file), "w.safetensors");
}

// Why a file with that header is refused.
std::string refusal(std::string_view header, size_t data_bytes = 0) {
  const std::string file = safetensors_file(header, data_bytes);
  const auto error = error_of<CheckpointError>([&] { parse(file); });
  EXPECT_EQ(error.where(), "w.safetensors");
  constexpr std::string_view kBegin = "this is not a valid safetensors file: ";
  EXPECT_TRUE(error.message().starts_with(kBegin)) << error.message();
  return error.message().substr(kBegin.size());
}

std::string tensor(std::string_view fields) { return R"({"a":{)" + std::string(fields) + "}}"; }

TEST(SafetensorsHeader, TellsNameTypeShapeAndRangeInTheOrderOfTheBytes) {
  const std::string file = safetensors_file(
      R"({"b":{"dtype":"F16","shape":[2,1],"data_offsets":[8,12]},)"
      R"("__metadata__":{"format":"pt","":"x"},"a":{"data_offsets":[0,8],"shape":[],"dtype":"I64"}}  )",
      12);
  const auto header = parse(file);
  ASSERT_EQ(header.entries.size(), 2U);
  EXPECT_EQ(header.entries[0].name, "a");
  EXPECT_EQ(header.entries[0].dtype, TensorDtype::kI64);
  EXPECT_THAT(header.entries[0].shape, ElementsAre());
  EXPECT_EQ(header.entries[1].name, "b");
  EXPECT_EQ(header.entries[1].dtype, TensorDtype::kF16);
  EXPECT_THAT(header.entries[1].shape, ElementsAre(2, 1));
  EXPECT_EQ(header.entries[1].begin, 8U);
  EXPECT_EQ(header.entries[1].end, 12U);
  EXPECT_EQ(header.metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"", "x"}}));
  EXPECT_EQ(header.data_begin, file.size() - 12);
}

TEST(SafetensorsHeader, SkipsKeysThatTheFormatDoesNotKnowHoweverDeepTheirValue) {
  std::string deep = R"("more":[{"x":[1,-2,3.5,null,true,"t",{}]},)";
  deep += std::string(100'000, '[') + std::string(100'000, ']') + "],";
  const auto header = parse(safetensors_file(
      tensor(deep + R"("dtype":"U8","shape":[3],"data_offsets":[0,3],"last":7)"), 3));
  ASSERT_EQ(header.entries.size(), 1U);
  EXPECT_EQ(header.entries[0].end, 3U);
}

TEST(SafetensorsHeader, SaysWhichFieldOfWhichTensorIsWrong) {
  EXPECT_EQ(refusal(tensor(R"("shape":[],"data_offsets":[0,0])")), "tensor \"a\" has no dtype");
  EXPECT_EQ(refusal(tensor(R"("dtype":"F31","shape":[],"data_offsets":[0,0])")),
            "tensor \"a\" has the unknown dtype \"F31\"");
  EXPECT_EQ(refusal(tensor(R"("dtype":"f32")")), "tensor \"a\" has the unknown dtype \"f32\"");
  EXPECT_EQ(refusal(tensor(R"("dtype":"F32","dtype":"F32")")), "tensor \"a\" has dtype twice");
  EXPECT_EQ(refusal(tensor(R"("shape":[-2])")),
            "the shape of tensor \"a\" is not a list of whole numbers: there is the number -2");
  EXPECT_EQ(refusal(tensor(R"("shape":[2e0])")),
            "the shape of tensor \"a\" is not a list of whole numbers: there is the number 2e0");
  EXPECT_EQ(refusal(tensor(R"("shape":{})")),
            "the shape of tensor \"a\" is not a list of whole numbers: there is an object");
  EXPECT_EQ(refusal(tensor(R"("data_offsets":[-0,8])")),
            "the data_offsets of tensor \"a\" are not two whole numbers: there is the number -0");
  EXPECT_EQ(refusal(tensor(R"("data_offsets":[0])")),
            "tensor \"a\" has fewer than two data_offsets");
  EXPECT_EQ(refusal(tensor(R"("data_offsets":[0,1,2])")),
            "tensor \"a\" has more than two data_offsets");
  EXPECT_EQ(refusal(R"({"a":["F32",[2],[0,8]]})"),
            "what it says of tensor \"a\" is an array, not an object");
  EXPECT_EQ(refusal(R"({"__metadata__":{"k":3}})"),
            "the value of \"k\" in its metadata is the number 3, not a string");
  EXPECT_EQ(refusal(R"({"__metadata__":null})"), "its __metadata__ is null, not an object");
  EXPECT_EQ(refusal(R"({"__metadata__":{},"__metadata__":{}})"),
            "the header has __metadata__ twice");
}

TEST(SafetensorsHeader, RefusesRangesWithHolesOverlapsOrBytesThatBelongToNoTensor) {
  const auto two = [](std::string_view first, std::string_view second) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + std::string(first) +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + std::string(second) + "}}";
  };
  EXPECT_EQ(refusal(two("[0,4]", "[5,9]"), 9),
            "there is a hole of 1 bytes before the range [5, 9] of tensor \"b\"");
  EXPECT_EQ(refusal(two("[0,4]", "[3,7]"), 7),
            "another tensor has a part of the range [3, 7] of tensor \"b\"");
  EXPECT_EQ(refusal(two("[4,0]", "[0,4]"), 4),
            "the range [4, 0] of tensor \"a\" ends before it begins");
  EXPECT_EQ(refusal(two("[0,4]", "[4,8]"), 7),
            "the range [4, 8] of tensor \"b\" ends beyond the file, which has 7 bytes of data");
  EXPECT_EQ(refusal(two("[0,4]", "[4,8]"), 11), "3 bytes at its end belong to no tensor");
  EXPECT_EQ(refusal("{}", 1), "1 bytes at its end belong to no tensor");
}

TEST(SafetensorsHeader, RefusesShapesThatDoNotFitTheirBytesOrOverflow) {
  const auto shaped = [](std::string_view dtype, std::string_view shape) {
    return tensor(R"("dtype":")" + std::string(dtype) + R"(","shape":)" + std::string(shape) +
                  R"(,"data_offsets":[0,2])");
  };
  EXPECT_EQ(refusal(shaped("F32", "[3]"), 2),
            "tensor \"a\" has 2 bytes, its shape and dtype need 12");
  const std::string beyond =
      "shape and dtype of tensor \"a\" give a number of bytes that is not whole or beyond 2^64";
  EXPECT_EQ(refusal(shaped("U8", "[4294967296,4294967296,4]"), 2), beyond);
  EXPECT_EQ(refusal(shaped("F32", "[4611686018427387904]"), 2), beyond);
  EXPECT_EQ(refusal(shaped("F4", "[3]"), 2), beyond);
  EXPECT_EQ(refusal(shaped("U8", "[9223372036854775808,0]"), 2),
            "tensor \"a\" has a dimension larger than 2^63 - 1");
  EXPECT_EQ(parse(safetensors_file(shaped("F4", "[4]"), 2)).entries.size(), 1U);
  std::string ones = "[1";
  for (int i = 0; i < 1024; ++i) ones += ",1";
  EXPECT_EQ(refusal(shaped("U8", ones + "]"), 2), "tensor \"a\" has more than 1024 dimensions");
}

TEST(SafetensorsHeader, RefusesNamesThatAreThereTwiceAlsoInTheMetadata) {
  constexpr std::string_view kInfo = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_EQ(refusal(R"({"x":)" + std::string(kInfo) + R"(,"x":)" + std::string(kInfo) + "}"),
            "tensor \"x\" is there twice");
  EXPECT_EQ(refusal(R"({"__metadata__":{"k":"1","k":"2"}})"),
            "the metadata have the key \"k\" twice");
}

TEST(SafetensorsHeader, RefusesLengthsAndPaddingThatTheFormatDoesNotAllow) {
  EXPECT_THAT(error_of<CheckpointError>([] { parse("1234567"); }).message(),
              HasSubstr("it has 7 bytes, its first 8 are its length"));
  std::string file = safetensors_file("{}");
  file[2] = 1;
  EXPECT_THAT(error_of<CheckpointError>([&] { parse(file); }).message(),
              HasSubstr("its header would have 65538 bytes, 2 are there"));
  file[7] = static_cast<char>(0xff);
  EXPECT_THAT(error_of<CheckpointError>([&] { parse(file); }).message(),
              HasSubstr("at most 100000000 are allowed"));
  EXPECT_EQ(refusal(" {}"), "its header does not begin with {");
  EXPECT_EQ(refusal("\xef\xbb\xbf{}"), "its header does not begin with {");
  EXPECT_EQ(refusal(""), "its header does not begin with {");
  EXPECT_EQ(refusal(std::string_view("{}\0\0", 4)), "its header has a byte 0");
  EXPECT_THAT(refusal("{}{}"), HasSubstr("its header is not valid JSON"));
  EXPECT_THAT(refusal(R"({"\ud800":{}})"), HasSubstr("its header is not valid JSON"));
  EXPECT_THAT(refusal("{/**/}"), HasSubstr("its header is not valid JSON"));
  EXPECT_TRUE(parse(safetensors_file("{} \n\t\r")).entries.empty());
}

TEST(SafetensorsHeader, RefusesAFileThatIsCutAtWhateverByte) {
  const std::string file = safetensors_file(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})",
      11);
  ASSERT_EQ(parse(file).entries.size(), 2U);
  for (size_t length = 0; length < file.size(); ++length) {
    // A copy that ends where the file does, so that reading behind it is seen by the sanitizers.
    const std::vector<char> cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_THROW(parse_safetensors_header(std::as_bytes(std::span(cut)), "cut"), CheckpointError)
        << length;
  }
}

TEST(SafetensorsHeader, RefusesDeepNestingWithoutRunningOutOfStack) {
  EXPECT_THAT(refusal(tensor(R"("dtype":)" + std::string(1'000'000, '['))),
              HasSubstr("is an array"));
  EXPECT_THAT(refusal(R"({"a":{"x":)" + std::string(1'000'000, '[')),
              HasSubstr("is not valid JSON"));
}

TEST(SafetensorsHeader, ShowsNamesThatAreNoPlainTextAsOne) {
  EXPECT_EQ(refusal(R"({"a\n\u00e9":{}})"), "tensor \"a\\x0a\\xc3\\xa9\" has no dtype");
  const std::string message = refusal(R"({")" + std::string(5000, 'x') + R"(":{}})");
  EXPECT_EQ(message, "tensor \"" + std::string(80, 'x') + "...\" has no dtype");
}

TEST(SafetensorsLayout, OrdersByTypeThenByNameAndPadsTheHeaderToEightBytes) {
  const SafetensorsLayout layout =
      lay_out_safetensors({{.name = "z", .dtype = TensorDtype::kF32, .shape = {1}},
                           {.name = "b", .dtype = TensorDtype::kU8, .shape = {3}},
                           {.name = "a", .dtype = TensorDtype::kF32, .shape = {1}},
                           {.name = "i", .dtype = TensorDtype::kI64, .shape = {2, 0}}},
                          {{"format", "pt"}});
  EXPECT_EQ(
      layout.header.substr(8),
      R"({"__metadata__":{"format":"pt"},"i":{"dtype":"I64","shape":[2,0],"data_offsets":[0,0]},)"
      R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("z":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},)"
      R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}}  )");
  EXPECT_EQ(layout.header.size() % 8, 0U);
  EXPECT_EQ(layout.header.substr(0, 8), std::string("\xf8\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(layout.file_bytes(), layout.header.size() + 11);
  EXPECT_EQ(lay_out_safetensors({}, {}).header, std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
}

TEST(SafetensorsLayout, EscapesNamesAndMetadataAndReadsThemBack) {
  const std::string odd = "q\"\\/\b\f\n\r\t\x01\x7f\u00e9\U0001f600";
  const SafetensorsLayout layout =
      lay_out_safetensors({{.name = odd, .dtype = TensorDtype::kU8}}, {{odd, odd}});
  EXPECT_THAT(layout.header,
              HasSubstr("\"q\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\x7f\u00e9\U0001f600\":"));
  const SafetensorsHeader header = parse(layout.header + "x");
  EXPECT_EQ(header.entries.at(0).name, odd);
  EXPECT_EQ(header.metadata.at(odd), odd);
}

TEST(SafetensorsLayout, RefusesWhatNoReaderWouldTake) {
  const auto refusal_of = [](std::vector<SafetensorsEntry> entries,
                             std::map<std::string, std::string> metadata = {}) {
    return error_of<UsageError>([&] { lay_out_safetensors(entries, metadata); }).message();
  };
  EXPECT_EQ(refusal_of({{.name = "a"}, {.name = "b"}, {.name = "a", .dtype = TensorDtype::kU8}}),
            "two tensors are called \"a\"");
  EXPECT_EQ(refusal_of({{.name = "__metadata__"}}),
            "a tensor of a safetensors file cannot be called __metadata__");
  EXPECT_EQ(refusal_of({{.name = "\xff"}}),
            "the name or metadata text \"\\xff\" is not valid UTF-8, which safetensors files need");
  EXPECT_THAT(refusal_of({}, {{"k", std::string(kMaxSafetensorsHeader, 'x')}}),
              HasSubstr("readers of safetensors files take at most 100000000"));
}

}  // namespace
}  // namespace accelerate::files

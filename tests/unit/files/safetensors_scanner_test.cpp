// The fast way through a safetensors header: what it takes it reads as the strict reader does, and
// everything else it leaves to it.
#include "files/safetensors/safetensors_scanner.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "files/safetensors/safetensors_reading.h"

namespace accelerate::files {
namespace {

SafetensorsHeader read_strictly(const std::string& text) {
  SafetensorsHeader header;
  const std::string where = "w.safetensors";
  SafetensorsEvents events(header, where);
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  return header;
}

void expect_same(const SafetensorsHeader& fast, const SafetensorsHeader& strict) {
  EXPECT_EQ(fast.metadata, strict.metadata);
  ASSERT_EQ(fast.entries.size(), strict.entries.size());
  for (size_t i = 0; i < fast.entries.size(); ++i) {
    EXPECT_EQ(fast.entries[i].name, strict.entries[i].name);
    EXPECT_EQ(fast.entries[i].dtype, strict.entries[i].dtype);
    EXPECT_EQ(fast.entries[i].shape, strict.entries[i].shape);
    EXPECT_EQ(fast.entries[i].begin, strict.entries[i].begin);
    EXPECT_EQ(fast.entries[i].end, strict.entries[i].end);
  }
}

std::string scanned_tensor(const std::string& fields) { return R"({"a":{)" + fields + "}}"; }

TEST(SafetensorsScanner, ReadsPlainHeadersAsTheStrictReaderDoes) {
  const std::string whole = R"("dtype":"F32","shape":[2,3],"data_offsets":[0,24])";
  for (const std::string& text : {
           std::string("{}"),
           std::string("{ } \n\t\r "),
           scanned_tensor(whole),
           scanned_tensor(R"("data_offsets":[0,9999999999999999999],"dtype":"U64","shape":[])"),
           std::string(R"({"__metadata__":{},"b":{)") + whole + R"(},"a":{)" + whole + "}}",
           std::string(R"({"__metadata__":{"format":"pt","":"{'x': /}"},"":{)") + whole + "}}   ",
           std::string("{ \"a\" :\n{ \"dtype\"\t: \"BOOL\" , \"shape\" : [ ] , "
                       "\"data_offsets\" : [ 7 , 8 ] } }"),
       }) {
    SafetensorsHeader fast;
    EXPECT_TRUE(scan_safetensors_header(text, fast)) << text;
    expect_same(fast, read_strictly(text));
  }
}

TEST(SafetensorsScanner, LeavesEverythingElseToTheStrictReader) {
  const std::string whole = R"("dtype":"U8","shape":[1],"data_offsets":[0,1])";
  for (const std::string& text : {
           // Valid, but not plain.
           std::string(R"({"\u0061":{)") + whole + "}}",
           std::string("{\"\xc3\xa4\":{") + whole + "}}",
           scanned_tensor(whole + R"(,"more":1)"),
           std::string(R"({"__metadata__":{"k":"a\nb"}})"),
           // Not valid.
           std::string(),
           std::string("{"),
           std::string("[]"),
           scanned_tensor(whole) + "x",
           scanned_tensor(whole) + "{}",
           scanned_tensor(whole + ","),
           std::string(R"({"a":{)") + whole + "},}",
           scanned_tensor(R"("dtype":"U8","shape":[1])"),
           scanned_tensor(R"("dtype":"U8","data_offsets":[0,1])"),
           scanned_tensor(R"("shape":[1],"data_offsets":[0,1])"),
           scanned_tensor(R"("dtype":"U8",)" + whole),
           scanned_tensor(R"("dtype":"u8","shape":[1],"data_offsets":[0,1])"),
           scanned_tensor(R"("dtype":"U8","shape":[01],"data_offsets":[0,1])"),
           scanned_tensor(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])"),
           scanned_tensor(R"("dtype":"U8","shape":[1.0],"data_offsets":[0,1])"),
           scanned_tensor(R"("dtype":"U8","shape":[1e0],"data_offsets":[0,1])"),
           scanned_tensor(R"("dtype":"U8","shape":[1,],"data_offsets":[0,1])"),
           scanned_tensor(R"("dtype":"U8","shape":[,],"data_offsets":[0,1])"),
           scanned_tensor(R"("dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,1])"),
           scanned_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0])"),
           scanned_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1,2])"),
           std::string("{\"a\tb\":{") + whole + "}}",
           std::string(R"({"a)"),
           std::string(R"({"__metadata__":{"k":1}})"),
           std::string(R"({"__metadata__":{"k":"1","k":"1"}})"),
           std::string(R"({"__metadata__":{},"__metadata__":{}})"),
       }) {
    SafetensorsHeader fast;
    EXPECT_FALSE(scan_safetensors_header(text, fast)) << text;
  }
}

}  // namespace
}  // namespace accelerate::files

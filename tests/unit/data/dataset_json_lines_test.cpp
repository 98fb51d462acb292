#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "accelerate/batch.h"
#include "accelerate/dataset_ops.h"
#include "accelerate/json_lines.h"
#include "unit/data/dataset_files.h"

namespace accelerate {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class JsonLinesFiles : public DatasetFiles {};

Sample parse_record(std::string_view line) {
  const auto record = nlohmann::json::parse(line);
  return {.data = at::tensor(record.at("x").get<std::vector<float>>()),
          .target = at::scalar_tensor(record.at("y").get<int64_t>(), at::kLong)};
}

TEST_F(JsonLinesFiles, EachLineIsASample) {
  const JsonLinesDataset dataset(
      write("a.jsonl", "{\"x\": [1, 2], \"y\": 3}\n{\"x\": [4, 5], \"y\": 6}\n"), parse_record);
  ASSERT_EQ(dataset.size(), 2U);
  EXPECT_TRUE(at::equal(dataset.get(1).data, at::tensor({4., 5.}, at::kFloat)));
  EXPECT_EQ(dataset.get(0).target.item<int64_t>(), 3);
}

TEST_F(JsonLinesFiles, LinesComeWithoutTheirEndsAndEmptyOnesAreLeftOut) {
  const JsonLinesDataset dataset(write("a.txt", "\none\r\n\n \t\r\n two \nthree"),
                                 [](std::string_view line) { return std::string(line); });
  ASSERT_EQ(dataset.size(), 3U);
  EXPECT_EQ(dataset.get(0), "one");
  EXPECT_EQ(dataset.get(1), " two ");
  EXPECT_EQ(dataset.get(2), "three");
}

TEST_F(JsonLinesFiles, ErrorsNameTheFileTheLineAndTheReason) {
  const auto path = write("a.jsonl", "{\"x\": [1], \"y\": 3}\n\n{\"x\": [1]}\n{broken\n");
  const JsonLinesDataset dataset(path, parse_record);
  ASSERT_EQ(dataset.size(), 3U);
  const DataError missing = error_of<DataError>([&] { dataset.get(1); });
  EXPECT_EQ(missing.where(), path.string() + ", line 3");
  EXPECT_THAT(missing.message(), StartsWith("the line cannot be used: "));
  EXPECT_THAT(missing.message(), HasSubstr("key 'y' not found"));
  const DataError broken = error_of<DataError>([&] { dataset.get(2); });
  EXPECT_EQ(broken.where(), path.string() + ", line 4");
  EXPECT_THAT(broken.message(), HasSubstr("parse error"));
}

TEST_F(JsonLinesFiles, GoesThroughCombinators) {
  const JsonLinesDataset dataset(write("a.txt", "1\n2\n3\n4\n"), [](std::string_view line) {
    return std::stoi(std::string(line));
  });
  const auto even = filter(dataset, [](int number) { return number % 2 == 0; });
  EXPECT_EQ(even.size(), 2U);
  EXPECT_EQ(even.get(1), 4);
}

TEST_F(JsonLinesFiles, RefusesMissingAndEmptyFilesAndIndices) {
  const auto identity = [](std::string_view line) { return std::string(line); };
  EXPECT_EQ(error_of<DataError>([&] { JsonLinesDataset(folder_ / "none", identity); }).message(),
            "the file of lines cannot be opened: No such file or directory");
  EXPECT_EQ(error_of<DataError>([&] { JsonLinesDataset(write("a", ""), identity); }).message(),
            "the file of lines is empty");
  EXPECT_EQ(JsonLinesDataset(write("b", "\n\n"), identity).size(), 0U);
  const JsonLinesDataset one(write("c", "x"), identity);
  EXPECT_EQ(error_of<UsageError>([&] { one.get(1); }).message(),
            "sample 1 was asked of a dataset of 1");
}

TEST_F(JsonLinesFiles, ManyThreadsReadAtOnce) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += std::to_string(i) + '\n';
  const JsonLinesDataset dataset(
      write("a.txt", text), [](std::string_view line) { return std::stoul(std::string(line)); });
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (size_t reader = 0; reader < 8; ++reader) {
    readers.emplace_back([&, reader] {
      for (size_t i = reader; i < 1000; i += 8) {
        if (dataset.get(i) != i) ++wrong;
      }
    });
  }
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace accelerate

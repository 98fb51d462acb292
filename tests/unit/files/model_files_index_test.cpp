// The index of a sharded model, and how tensors are spread over files.
#include <gmock/gmock.h>

#include "files/safetensors/shard_index.h"
#include "files/size_text.h"
#include "unit/files/safetensors_files.h"

namespace accelerate::files {
namespace {

using test::error_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string index_refusal(std::string_view text) {
  const auto error = error_of<CheckpointError>([&] { parse_shard_index(text, "i.json"); });
  EXPECT_EQ(error.where(), "i.json");
  constexpr std::string_view kBegin = "this is not a valid index of model files: ";
  EXPECT_TRUE(error.message().starts_with(kBegin)) << error.message();
  return error.message().substr(kBegin.size());
}

TEST(ShardIndex, IsReadWithOrWithoutTheObjectAroundTheMap) {
  const std::map<std::string, std::string> expected{{"a", "1.bin"}, {"b.c", "sub/2.bin"}};
  const auto wrapped = parse_shard_index(
      R"({"metadata":{"total_size":24,"x":[{"total_size":1}]},"weight_map":{"b.c":"sub/2.bin","a":"1.bin"}})",
      "");
  EXPECT_EQ(wrapped.weight_map, expected);
  EXPECT_EQ(wrapped.total_size, 24U);
  EXPECT_EQ(parse_shard_index(R"({"a":"1.bin","b.c":"sub/2.bin"})", "").weight_map, expected);
  EXPECT_EQ(parse_shard_index(R"({"metadata":{"total_size":2.5e3},"weight_map":{"a":"x"}})", "")
                .total_size,
            2500U);
  // What stands beside a weight_map is not the map, whatever it looks like.
  EXPECT_EQ(
      parse_shard_index(
          R"({"note":"../x","n":1,"weight_map":{"a":"1.bin","b.c":"sub/2.bin"},"l":["y"],"z":"/"})",
          "")
          .weight_map,
      expected);
}

TEST(ShardIndex, RefusesNamesOfFilesThatLeaveTheFolder) {
  for (const char* file : {"../w.bin", "/etc/passwd", "a/../../w", "a//b", "./w", "..", "", "a/",
                           "a\\\\b", "w\\u0000.bin", "w\\n"}) {
    EXPECT_THAT(index_refusal(std::string(R"({"weight_map":{"t":")") + file + "\"}}"),
                HasSubstr("of tensor \"t\" is not a name inside the folder of the index"))
        << file;
  }
}

TEST(ShardIndex, RefusesEverythingThatIsNoMapOfTexts) {
  EXPECT_EQ(index_refusal("[]"), "it is an array, not an object");
  EXPECT_EQ(index_refusal("\"x\""), "it is a string, not an object");
  EXPECT_EQ(index_refusal("3"), "it is a number, not an object");
  EXPECT_EQ(index_refusal("{}"), "it names no tensor");
  EXPECT_EQ(index_refusal(R"({"weight_map":{}})"), "it names no tensor");
  EXPECT_EQ(index_refusal(R"({"weight_map":"x"})"), "its weight_map is a string, not an object");
  EXPECT_EQ(index_refusal(R"({"weight_map":null})"), "its weight_map is null, not an object");
  EXPECT_EQ(index_refusal(R"({"weight_map":["x"]})"), "its weight_map is an array, not an object");
  EXPECT_EQ(index_refusal(R"({"weight_map":{"a":1}})"),
            "the file of tensor \"a\" is a number, not a string");
  EXPECT_EQ(index_refusal(R"({"weight_map":{"a":{"b":"c"}}})"),
            "the file of tensor \"a\" is an object, not a string");
  EXPECT_EQ(index_refusal(R"({"weight_map":{"a":["c"]}})"),
            "the file of tensor \"a\" is an array, not a string");
  EXPECT_EQ(index_refusal(R"({"weight_map":{"a":"x","a":"y"}})"), "tensor \"a\" is there twice");
  EXPECT_EQ(index_refusal(R"({"weight_map":{"a":"x"},"weight_map":{"a":"x"}})"),
            "it has weight_map twice");
  EXPECT_EQ(index_refusal(R"({"a":"x","b":3})"), "the value of \"b\" is not the name of a file");
  EXPECT_THAT(index_refusal(R"({"a":"x"})"
                            "x"),
              HasSubstr("it is not valid JSON"));
  EXPECT_EQ(index_refusal(std::string_view("{\"a\":\"x\"}\0", 10)), "it has a byte 0");
  EXPECT_THAT(index_refusal("{\"a\":" + std::string(1'000'000, '[')),
              HasSubstr("it is not valid JSON"));
}

TEST(ShardIndex, RefusesATextThatIsCutAtWhateverByte) {
  const std::string text =
      shard_index_text({.total_size = 7, .weight_map = {{"a", "1.bin"}, {"b", "2.bin"}}});
  ASSERT_EQ(parse_shard_index(text, "").weight_map.size(), 2U);
  for (size_t length = 0; length + 1 < text.size(); ++length) {
    EXPECT_THROW(parse_shard_index(text.substr(0, length), ""), CheckpointError) << length;
  }
}

TEST(ShardIndex, IsWrittenAsPythonWritesIt) {
  EXPECT_EQ(shard_index_text(
                {.total_size = 24, .weight_map = {{"b", "m-2.bin"}, {"a\u00e9\x7f", "m-1.bin"}}}),
            "{\n"
            "  \"metadata\": {\n"
            "    \"total_size\": 24\n"
            "  },\n"
            "  \"weight_map\": {\n"
            "    \"a\\u00e9\\u007f\": \"m-1.bin\",\n"
            "    \"b\": \"m-2.bin\"\n"
            "  }\n"
            "}\n");
  EXPECT_THAT(error_of<UsageError>([] {
                shard_index_text({.weight_map = {{"\xff", "x"}}});
              }).message(),
              HasSubstr("is not valid UTF-8"));
}

using ShardIndexFile = test::ScratchFolder;

TEST_F(ShardIndexFile, MayNameFilesOfItsFolderAndLinksThatStayInside) {
  write("real.bin", "x");
  std::filesystem::create_symlink("real.bin", folder_ / "link.bin");
  const auto path = write("i.json", R"({"a":"real.bin","b":"link.bin"})");
  EXPECT_EQ(read_shard_index(path).weight_map.size(), 2U);
}

TEST_F(ShardIndexFile, IsRefusedIfAFileIsMissingOrALinkLeadsOut) {
  const auto missing = write("missing.json", R"({"a":"none.bin"})");
  EXPECT_EQ(error_of<CheckpointError>([&] { read_shard_index(missing); }).message(),
            "the file \"none.bin\", which the index names, cannot be opened: No such file or "
            "directory");
  std::filesystem::create_directory(folder_ / "inside");
  write("secret.bin", "x");
  std::filesystem::create_symlink("../secret.bin", folder_ / "inside" / "out.bin");
  const auto leads_out = write("inside/i.json", R"({"a":"out.bin"})");
  EXPECT_EQ(error_of<CheckpointError>([&] { read_shard_index(leads_out); }).message(),
            "the file \"out.bin\", which the index names, is a link out of the folder");
  std::filesystem::create_directory_symlink("..", folder_ / "inside" / "up");
  const auto through = write("inside/j.json", R"({"a":"up/secret.bin"})");
  EXPECT_THAT(error_of<CheckpointError>([&] { read_shard_index(through); }).message(),
              HasSubstr("is a link out of the folder"));
  const auto folder = write("folder.json", R"({"a":"inside"})");
  EXPECT_THAT(error_of<CheckpointError>([&] { read_shard_index(folder); }).message(),
              HasSubstr("is not a regular file"));
  EXPECT_THAT(error_of<CheckpointError>([&] { read_shard_index(folder_ / "no.json"); }).message(),
              HasSubstr("the index of model files cannot be opened"));
}

TEST_F(ShardIndexFile, OfAHubCacheIsReadIfLinksAreFollowed) {
  std::filesystem::create_directories(folder_ / "blobs");
  std::filesystem::create_directories(folder_ / "snapshots/rev");
  write("blobs/01", "x");
  write("blobs/02", R"({"a":"m.bin"})");
  std::filesystem::create_symlink("../../blobs/01", folder_ / "snapshots/rev/m.bin");
  const auto index = folder_ / "snapshots/rev/m.bin.index.json";
  std::filesystem::create_symlink("../../blobs/02", index);
  EXPECT_THAT(error_of<CheckpointError>([&] { read_shard_index(index); }).hint(),
              HasSubstr("follow_links"));
  EXPECT_EQ(read_shard_index(index, Links::kFollowed).weight_map.at("a"), "m.bin");
  // The names themselves must stay inside all the same.
  const auto out = write("snapshots/rev/out.json", R"({"a":"../../blobs/01"})");
  EXPECT_THAT(error_of<CheckpointError>([&] { read_shard_index(out, Links::kFollowed); }).message(),
              HasSubstr("is not a name inside the folder"));
}

std::vector<std::vector<std::string>> spread(const std::vector<ShardedTensor>& tensors,
                                             uint64_t max_bytes) {
  std::vector<std::vector<std::string>> shards;
  for (const Shard& shard : plan_shards(tensors, max_bytes, "model", ".bin").shards) {
    shards.push_back(shard.tensors);
  }
  return shards;
}

TEST(ShardPlan, FillsFilesInOrderAndGivesALargerTensorAFileBeforeTheOneThatIsOpen) {
  EXPECT_THAT(spread({{"a", 6}, {"b", 4}, {"c", 1}}, 10),
              ElementsAre(ElementsAre("a", "b"), ElementsAre("c")));
  EXPECT_THAT(spread({{"a", 3}, {"big", 11}, {"c", 3}}, 10),
              ElementsAre(ElementsAre("big"), ElementsAre("a", "c")));
  EXPECT_THAT(spread({{"a", 1}, {"e", 0}, {"b", 1}}, 0),
              ElementsAre(ElementsAre("a"), ElementsAre("b"), ElementsAre("e")));
}

TEST(ShardPlan, KeepsTensorsThatShareMemoryInOneFileAndCountsThemOnce) {
  const std::vector<ShardedTensor> tensors{{"a", 6, 1}, {"b", 6, 2}, {"tied", 6, 1}};
  EXPECT_THAT(spread(tensors, 6), ElementsAre(ElementsAre("a", "tied"), ElementsAre("b")));
  EXPECT_EQ(plan_shards(tensors, 6, "m", "").total_size, 12U);
}

TEST(ShardPlan, NumbersFilesWithFiveDigitsAndLeavesOneFileWithoutNumber) {
  const auto plan = plan_shards({{"a", 6}, {"b", 6}}, 6, "model", ".safetensors");
  EXPECT_TRUE(plan.is_sharded());
  EXPECT_EQ(plan.shards.at(1).file, "model-00002-of-00002.safetensors");
  const auto one = plan_shards({{"a", 6}}, 6, "model", ".safetensors");
  EXPECT_FALSE(one.is_sharded());
  EXPECT_EQ(one.shards.at(0).file, "model.safetensors");
  EXPECT_EQ(plan_shards({}, 6, "model", ".bin").shards.at(0).file, "model.bin");
}

TEST(ShardPlan, KnowsTheFilesThatASaveCanHaveWritten) {
  for (const char* ours : {"model.bin", "model.bin.index.json", "model-00001-of-00002.bin",
                           "model-123456-of-123456.bin"}) {
    EXPECT_TRUE(is_model_file(ours, "model", ".bin")) << ours;
  }
  for (const char* other :
       {"model_1.bin", "my_model.bin", "model.bin.json", "model.bin.index.json2",
        "model-1-of-2.bin", "model-00001-of-00002.bin.bak", "model-a-of-b.bin", "model-00001.bin",
        "model"}) {
    EXPECT_FALSE(is_model_file(other, "model", ".bin")) << other;
  }
}

TEST(SizeText, OfAShardIsDecimalUnlessItSaysBinary) {
  EXPECT_EQ(parse_shard_size("10GB"), 10'000'000'000U);
  EXPECT_EQ(parse_shard_size(" 1.5 kb "), 1500U);
  EXPECT_EQ(parse_shard_size("2tB"), 2'000'000'000'000U);
  EXPECT_EQ(parse_shard_size("1GiB"), 1U << 30);
  EXPECT_EQ(parse_shard_size("1.5kib"), 1536U);
  for (const char* wrong : {"10", "GB", "-1GB", "GiB", "1e400TB", "infGB", "nanGB", "1 0GB", ""}) {
    EXPECT_THAT(error_of<UsageError>([&] { parse_shard_size(wrong); }).message(),
                HasSubstr("is not a size"))
        << wrong;
  }
  EXPECT_THAT(error_of<UsageError>([] { parse_shard_size("300"); }).hint(),
              AllOf(HasSubstr("KB, MB, GB or TB, or KiB to TiB"),
                    HasSubstr("a number of bytes is an integer")));
}

}  // namespace
}  // namespace accelerate::files

// What a manifest says, and what its reader refuses.
#include "files/manifest/manifest.h"

#include <gmock/gmock.h>

#include <limits>

#include "accelerate/errors.h"
#include "files/manifest/manifest_format.h"

namespace accelerate::files {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Manifest example() {
  return {
      .library_version = "0.1.0",
      .world_size = 2,
      .step = 400,
      .created = 1767225599,  // 2025-12-31T23:59:59Z
      .state = {{"epoch", 3}, {"lr", 0.1}, {"names", {"\xc3\xa4", "\n"}}},
      .files = {
          {.name = "model.safetensors",
           .bytes = 72,
           .checksum = 0xff,
           .parts = {{.name = "w",
                      .offset = 8,
                      .bytes = 48,
                      .checksum = 1,
                      .dtype = "F32",
                      .shape = {3, 4},
                      .shard = ShardRecord{{6, 4}, {3, 0}}},
                     {.name = "scalar", .offset = 56, .bytes = 4, .checksum = 2, .dtype = "F32"},
                     {.name = "blob", .offset = 60, .bytes = 12, .checksum = 3}}},
          {.name = "scheduler.bin", .bytes = 0, .checksum = 0}}};
}

std::string refusal(std::string_view text) {
  try {
    parse_manifest(text, "dir/manifest.json");
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.where(), "dir/manifest.json");
    return error.message();
  }
  return "none";
}

// A manifest with `from` replaced by `to`, and a checksum that fits: what a program, not a broken
// disk, can make.
std::string altered(const std::string& from, const std::string& to) {
  std::string text = manifest_text(example());
  text.resize(text.size() - kManifestTailBytes);
  const size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  text.replace(place, from.size(), to);
  return text + manifest_tail(text);
}

struct Alteration {
  std::string from, to, refusal;
};

void expect_refusals(const std::vector<Alteration>& alterations) {
  for (const Alteration& each : alterations) {
    EXPECT_EQ(refusal(altered(each.from, each.to)), each.refusal) << each.to;
  }
}

TEST(ManifestTest, ComesBackAsItWasWritten) {
  const Manifest manifest = example();
  EXPECT_EQ(parse_manifest(manifest_text(manifest), "m"), manifest);
  EXPECT_EQ(parse_manifest(manifest_text({}), "m"), Manifest{});
}

TEST(ManifestTest, IsWrittenForPeopleToReadToo) {
  EXPECT_EQ(
      manifest_text(example()),
      "{\n"
      "\"format\": \"accelerate-checkpoint\",\n"
      "\"version\": 1,\n"
      "\"library_version\": \"0.1.0\",\n"
      "\"world_size\": 2,\n"
      "\"step\": 400,\n"
      "\"created\": \"2025-12-31T23:59:59Z\",\n"
      "\"state\": {\"epoch\":3,\"lr\":0.1,\"names\":[\"\xc3\xa4\",\"\\n\"]},\n"
      "\"files\": [\n"
      "{\"name\": \"model.safetensors\", \"bytes\": 72, \"checksum\": \"00000000000000ff\", "
      "\"parts\": [\n"
      "{\"name\": \"w\", \"dtype\": \"F32\", \"shape\": [3,4], \"shard\": {\"global_shape\": "
      "[6,4], \"start\": [3,0]}, \"offset\": 8, \"bytes\": 48, \"checksum\": "
      "\"0000000000000001\"},\n"
      "{\"name\": \"scalar\", \"dtype\": \"F32\", \"shape\": [], \"offset\": 56, \"bytes\": 4, "
      "\"checksum\": \"0000000000000002\"},\n"
      "{\"name\": \"blob\", \"offset\": 60, \"bytes\": 12, \"checksum\": "
      "\"0000000000000003\"}]},\n"
      "{\"name\": \"scheduler.bin\", \"bytes\": 0, \"checksum\": \"0000000000000000\", "
      "\"parts\": []}],\n"
      "\"checksum\": \"" +
          manifest_text(example()).substr(manifest_text(example()).size() - 20, 16) + "\"\n}\n");
}

TEST(ManifestTest, EveryFlippedBitIsNoticed) {
  const std::string text = manifest_text(example());
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string damaged = text;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    ASSERT_THAT(refusal(damaged), StartsWith("the manifest is ")) << "bit " << bit;
  }
}

TEST(ManifestTest, EveryTruncationIsNoticed) {
  const std::string text = manifest_text(example());
  for (size_t size = 0; size < text.size(); ++size) {
    ASSERT_THAT(refusal(std::string_view(text).substr(0, size)), StartsWith("the manifest is "))
        << size << " bytes";
  }
  EXPECT_THAT(refusal(text + "\n"), StartsWith("the manifest is truncated"));
}

TEST(ManifestTest, NamesThatLeadOutOfTheFolderAreRefused) {
  for (const char* name : {"../model", "a/../../b", "/etc/passwd", "..", ".", "", ".hidden",
                           "sub/model", "manifest.json", "a\\u0000b", "a\\u00e4"}) {
    EXPECT_THAT(refusal(altered("model.safetensors", name)), HasSubstr("cannot be named")) << name;
  }
}

TEST(ManifestTest, PartsMustLieInsideTheirFileOneAfterTheOther) {
  expect_refusals(
      {{"\"bytes\": 12", "\"bytes\": 13",
        "model.safetensors, part blob ends after the end of its file"},
       {"\"offset\": 60, \"bytes\": 12", "\"offset\": 18446744073709551615, \"bytes\": 2",
        "model.safetensors, part blob ends after the end of its file"},
       {"\"offset\": 56", "\"offset\": 55",
        "model.safetensors, part scalar begins before the end of the part before it"},
       {"\"name\": \"scalar\"", "\"name\": \"w\"", "model.safetensors, part w is listed twice"}});
}

TEST(ManifestTest, WhatIsUnknownMissingTwiceOrOfTheWrongTypeIsRefused) {
  expect_refusals(
      {{"\"step\": 400", "\"steps\": 400", "the manifest has no \"step\""},
       {"\"step\": 400", "\"step\": 400,\"more\": 1", "the manifest has an unknown key"},
       {"\"step\": 400", "\"step\": 400,\"step\": 400", "the key \"step\" appears twice"},
       {"\"epoch\":3", "\"epoch\":3,\"epoch\":4", "the key \"epoch\" appears twice"}});
  for (const char* value : {"-1", "1.0", "\"400\"", "null", "[400]", "18446744073709551615"}) {
    EXPECT_THAT(refusal(altered("\"step\": 400", std::string("\"step\": ") + value)),
                StartsWith("\"step\" of the manifest is "))
        << value;
  }
  expect_refusals(
      {{"\"world_size\": 2", "\"world_size\": 0", "the world size is below 1"},
       {"\"world_size\": 2", "\"world_size\": 4294967297", "the world size is impossible"},
       {"00000000000000ff", "00000000000000FF",
        "\"checksum\" of a file is not 16 hexadecimal digits"},
       {"accelerate-checkpoint", "checkpoint", "\"format\" of the manifest is unknown"},
       {"\"version\": 1", "\"version\": 2",
        "the checkpoint has format version 2, this library reads version 1"}});
  EXPECT_THAT(refusal(altered("{\n", "{{\n")), StartsWith("this is not valid JSON: "));
  expect_refusals({{"\"shape\": [3,4]", "\"shape\": [3,-4]",
                    "\"shape\" of a part of model.safetensors holds something that is not a size"},
                   {"\"start\": [3,0]", "\"start\": [4,0]",
                    "model.safetensors, part w does not lie inside its global shape"},
                   {"scheduler.bin", "model.safetensors", "model.safetensors is listed twice"},
                   {"{\"epoch\":3,\"lr\":0.1,\"names\":[\"\xc3\xa4\",\"\\n\"]}", "[1]",
                    "the state is not an object"}});
}

TEST(ManifestTest, TimesThatDoNotExistAreRefused) {
  for (const char* time : {"2025-02-29T00:00:00Z", "2025-12-31T24:00:00Z", "2025-12-31T23:59:60Z",
                           "2025-13-01T00:00:00Z", "2025-12-31 23:59:59Z", "2025-12-31T23:59:59",
                           "+025-12-31T23:59:59Z"}) {
    EXPECT_EQ(refusal(altered("2025-12-31T23:59:59Z", time)),
              "\"created\" of the manifest is not a time");
  }
  EXPECT_EQ(refusal(altered("2025-12-31T23:59:59Z", "1969-12-31T23:59:59Z")),
            "the time is impossible");
  EXPECT_EQ(parse_manifest(altered("2025-12-31T23:59:59Z", "2024-02-29T00:00:01Z"), "m").created,
            1709164801);
}

nlohmann::json nested(int depth) {
  nlohmann::json value = nlohmann::json::object();
  for (int i = 1; i < depth; ++i) value = nlohmann::json{{"a", value}};
  return value;
}

TEST(ManifestTest, DepthIsLimited) {
  EXPECT_EQ(parse_manifest(manifest_text({.state = nested(63)}), "m").state, nested(63));
  EXPECT_THROW(manifest_text({.state = nested(64)}), CheckpointError);
  const std::string deep(1'000'000, '[');
  EXPECT_EQ(refusal(altered("\"epoch\":3", "\"epoch\":" + deep)), "it is nested too deeply");
}

TEST(ManifestTest, WhatCouldNotBeReadAgainIsNotWritten) {
  const auto refused = [](auto change) {
    Manifest manifest = example();
    change(manifest);
    try {
      manifest_text(manifest);
    } catch (const CheckpointError& error) {
      return error.message();
    }
    return std::string("none");
  };
  EXPECT_EQ(refused([](Manifest& m) { m.state = nullptr; }), "the state is not an object");
  EXPECT_EQ(refused([](Manifest& m) { m.state["x"] = std::numeric_limits<double>::quiet_NaN(); }),
            "the state holds a number that is not finite");
  EXPECT_EQ(refused([](Manifest& m) {
              m.state["x"] = nlohmann::json::binary({1, 2});
            }),
            "the state holds bytes");
  EXPECT_THAT(refused([](Manifest& m) { m.state["x"] = "\xff"; }),
              StartsWith("a name or the state is not text in UTF-8"));
  EXPECT_THAT(refused([](Manifest& m) { m.files[0].parts[0].name = "\xff"; }),
              StartsWith("a name or the state is not text in UTF-8"));
  EXPECT_EQ(refused([](Manifest& m) { m.files[1].name = "../x"; }),
            "a file of the checkpoint cannot be named \"../x\"");
  EXPECT_EQ(refused([](Manifest& m) { m.files[0].parts[2].shape = {3}; }),
            "model.safetensors, part blob has a shape but no dtype");
  EXPECT_EQ(refused([](Manifest& m) { m.state["x"] = std::string(kMaxManifestBytes, 'x'); }),
            "the manifest is larger than 67108864 bytes");
}

TEST(ManifestTest, ARefusalIsShortAndCannotSteerATerminal) {
  EXPECT_EQ(refusal(altered("model.safetensors", "\\u001b[2J")),
            "a file of the checkpoint cannot be named \"?[2J\"");
  const std::string text = refusal(altered("model.safetensors", std::string(100'000, 'x')));
  EXPECT_EQ(text.size(), 303U);
  EXPECT_THAT(text, EndsWith("xxx..."));
}

TEST(ManifestTest, RecordsOfARankTravelAsOneLine) {
  const std::vector<FileRecord> records = example().files;
  const std::string text = records_text(records);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(parse_records(text, "rank 1"), records);
  EXPECT_EQ(parse_records(records_text({}), "rank 1"), std::vector<FileRecord>{});
  try {
    parse_records("[{\"name\": \"a\"}]", "rank 1");
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.message(), "a file has no \"bytes\"");
    EXPECT_EQ(error.where(), "rank 1");
  }
}

}  // namespace
}  // namespace accelerate::files

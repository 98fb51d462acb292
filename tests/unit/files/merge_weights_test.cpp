// Models that are merged into one file, spread again, or refused.
#include "files/merge/merge_weights.h"

#include <gmock/gmock.h>

#include <map>

#include "files/manifest/checkpoint_writer.h"
#include "files/safetensors/safetensors_header.h"
#include "unit/files/safetensors_files.h"

namespace accelerate::files {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using Metadata = std::map<std::string, std::string>;

struct Content {
  std::vector<uint64_t> shape;
  std::string bytes;
  bool operator==(const Content&) const = default;
};
using Tensors = std::map<std::string, Content>;

// Of type U8.
std::string file_of(const Tensors& tensors, const Metadata& metadata = {{"format", "pt"}}) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, content] : tensors) {
    entries.push_back({.name = name, .dtype = TensorDtype::kU8, .shape = content.shape});
  }
  const SafetensorsLayout layout = lay_out_safetensors(entries, metadata);
  std::string file = layout.header;
  for (const SafetensorsEntry& entry : layout.entries) file += tensors.at(entry.name).bytes;
  return file;
}

class MergeWeights : public test::ScratchFolder {
 protected:
  void SetUp() override {
    ScratchFolder::SetUp();
    fs::create_directory(folder_ / "in");
  }

  // Two shards, in which "c" is also known as "d".
  void write_shards() {
    write("in/model-00001-of-00002.safetensors", file_of({{"a", {{2, 3}, "aaaaaa"}}}));
    write("in/model-00002-of-00002.safetensors",
          file_of({{"b", {{}, "b"}}, {"c", {{2}, "cc"}}}, {{"format", "pt"}, {"d", "c"}}));
    write_index(R"({"metadata":{"total_size":9},"weight_map":{
        "a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors",
        "c":"model-00002-of-00002.safetensors"}})");
  }
  void write_index(const std::string& text) { write("in/model.safetensors.index.json", text); }

  SafetensorsHeader header_of(const std::string& name) {
    const std::string file = read(name);
    return parse_safetensors_header(test::bytes_of(file), name);
  }
  Tensors tensors_of(const std::string& name) {
    const std::string file = read(name);
    const SafetensorsHeader header = parse_safetensors_header(test::bytes_of(file), name);
    Tensors tensors;
    for (const SafetensorsEntry& entry : header.entries) {
      tensors[entry.name] = {entry.shape,
                             file.substr(header.data_begin + entry.begin, entry.end - entry.begin)};
    }
    return tensors;
  }

  const Tensors shards_{{"a", {{2, 3}, "aaaaaa"}}, {"b", {{}, "b"}}, {"c", {{2}, "cc"}}};
};

TEST_F(MergeWeights, MakesOneFileOfShardsAndKeepsAliasesAndMetadata) {
  write_shards();
  const MergeReport report = merge_safetensors(folder_ / "in", folder_ / "new" / "out");
  EXPECT_EQ(report.path, folder_ / "new/out/model.safetensors");
  EXPECT_EQ(report.tensors, 3U);
  EXPECT_EQ(report.bytes, 9U);
  EXPECT_EQ(report.files, 1U);
  EXPECT_EQ(tensors_of("new/out/model.safetensors"), shards_);
  EXPECT_EQ(header_of("new/out/model.safetensors").metadata,
            (Metadata{{"format", "pt"}, {"d", "c"}}));
  // Nothing else, and the source as it was.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "new/out"), {}), 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "in"), {}), 3);
}

TEST_F(MergeWeights, TakesAnIndexAndWritesAFileOfAnyName) {
  write_shards();
  write("model.safetensors", "another model");
  const MergeReport report = merge_safetensors(folder_ / "in/model.safetensors.index.json",
                                               folder_ / "merged.safetensors");
  EXPECT_EQ(report.path, folder_ / "merged.safetensors");
  EXPECT_EQ(tensors_of("merged.safetensors"), shards_);
  EXPECT_EQ(read("model.safetensors"), "another model");
}

TEST_F(MergeWeights, SpreadsAModelOverShardsWithAnIndexThatLeadsBack) {
  write("in/model.safetensors", file_of(shards_, {{"format", "pt"}, {"d", "c"}}));
  const MergeReport report =
      merge_safetensors(folder_ / "in", folder_ / "out", {.max_shard_bytes = 6});
  EXPECT_EQ(report.path, folder_ / "out/model.safetensors.index.json");
  EXPECT_EQ(report.files, 2U);
  EXPECT_EQ(tensors_of("out/model-00001-of-00002.safetensors"),
            (Tensors{{"a", {{2, 3}, "aaaaaa"}}}));
  EXPECT_EQ(header_of("out/model-00001-of-00002.safetensors").metadata,
            (Metadata{{"format", "pt"}}));
  EXPECT_EQ(header_of("out/model-00002-of-00002.safetensors").metadata,
            (Metadata{{"format", "pt"}, {"d", "c"}}));
  merge_safetensors(folder_ / "out", folder_ / "back");
  EXPECT_EQ(read("back/model.safetensors"), read("in/model.safetensors"));
}

TEST_F(MergeWeights, ReportsMetadataInWhichTheFilesDiffer) {
  write("in/1.safetensors", file_of({{"a", {{1}, "a"}}}, {{"format", "pt"}, {"part", "1"}}));
  write("in/2.safetensors", file_of({{"b", {{1}, "b"}}}, {{"format", "pt"}, {"part", "2"}}));
  write_index(R"({"a":"1.safetensors","b":"2.safetensors"})");
  EXPECT_THAT(merge_safetensors(folder_ / "in", folder_ / "out").differing_metadata,
              ElementsAre("part"));
  EXPECT_EQ(header_of("out/model.safetensors").metadata, (Metadata{{"format", "pt"}}));
}

TEST_F(MergeWeights, TheIndexDecidesWhichOfTwoTensorsCounts) {
  write("in/1.safetensors", file_of({{"a", {{1}, "x"}}, {"b", {{1}, "b"}}}));
  write("in/2.safetensors", file_of({{"a", {{1}, "a"}}}));
  write_index(R"({"a":"2.safetensors","b":"1.safetensors"})");
  merge_safetensors(folder_ / "in", folder_ / "out");
  EXPECT_EQ(tensors_of("out/model.safetensors"), (Tensors{{"a", {{1}, "a"}}, {"b", {{1}, "b"}}}));

  write("in/1.safetensors", file_of({{"a", {{1}, "x"}}, {"b", {{1}, "b"}}}));
  write("in/2.safetensors", file_of({{"a", {{1}, "a"}}, {"c", {{1}, "c"}}}));
  write_index(R"({"c":"2.safetensors","b":"1.safetensors"})");
  const auto error = test::error_of<CheckpointError>(
      [&] { merge_safetensors(folder_ / "in", folder_ / "other"); });
  EXPECT_EQ(error.message(), "tensor \"a\" is in another file too");
}

TEST_F(MergeWeights, TheResultMayBeBesideASourceThatIsOneFile) {
  write_shards();
  merge_safetensors(folder_ / "in", folder_ / "one/model.safetensors");
  const fs::path whole = folder_ / "one/model.safetensors";
  EXPECT_EQ(merge_safetensors(whole, folder_ / "one/shards", {.max_shard_bytes = 5}).path,
            folder_ / "one/shards/model.safetensors.index.json");
  EXPECT_EQ(merge_safetensors(whole, folder_ / "one/copy.safetensors").path,
            folder_ / "one/copy.safetensors");
  const auto refusal = [&](const fs::path& target) {
    return test::error_of<UsageError>(
               [&] { merge_safetensors(whole, target, {.overwrite = true}); })
        .message();
  };
  EXPECT_EQ(refusal(folder_ / "one"), "the target is the folder of the source");
  EXPECT_EQ(refusal(folder_ / "one/../one/model.safetensors"), "the target is the source");
}

TEST_F(MergeWeights, RefusesATargetInTheSourceOrThatHoldsAModel) {
  write_shards();
  const auto refusal = [&](const fs::path& target, const MergeOptions& options = {}) {
    return test::error_of<UsageError>([&] { merge_safetensors(folder_ / "in", target, options); })
        .message();
  };
  EXPECT_EQ(refusal(folder_ / "in"), "the target is in the folder of the source");
  EXPECT_EQ(refusal(folder_ / "in/deeper", {.overwrite = true}),
            "the target is in the folder of the source");
  EXPECT_EQ(refusal(folder_ / "x/../in/model.safetensors"),
            "the target is in the folder of the source");
  EXPECT_EQ(refusal(folder_ / "m.safetensors", {.max_shard_bytes = 5}),
            "a file cannot hold the shards of a model");

  fs::create_directory(folder_ / "out");
  write("out/pytorch_model.bin", "an earlier model");
  write("out/notes.txt", "mine");
  EXPECT_EQ(refusal(folder_ / "out"), "the target holds a model");
  EXPECT_EQ(read("out/pytorch_model.bin"), "an earlier model");
  merge_safetensors(folder_ / "in", folder_ / "out", {.overwrite = true});
  EXPECT_EQ(tensors_of("out/model.safetensors"), shards_);
  EXPECT_EQ(read("out/notes.txt"), "mine");
  EXPECT_FALSE(fs::exists(folder_ / "out/pytorch_model.bin"));

  write("out/manifest.json", "{}");
  EXPECT_EQ(refusal(folder_ / "out", {.overwrite = true}),
            "the target is a state directory, which never changes");
}

TEST_F(MergeWeights, RemovesTheSourceOnlyIfAsked) {
  write_shards();
  write("in/config.json", "{}");
  merge_safetensors(folder_ / "in", folder_ / "out", {.remove_source = true});
  EXPECT_EQ(tensors_of("out/model.safetensors"), shards_);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "in"), {}), 1);
  EXPECT_TRUE(fs::exists(folder_ / "in/config.json"));
}

TEST_F(MergeWeights, RefusesHostileAndDamagedSourcesAndLeavesNoTarget) {
  write("outside.safetensors", file_of({{"a", {{1}, "a"}}}));
  write("in/whole.safetensors", file_of({{"a", {{1}, "a"}}}));
  write("in/cut.safetensors", file_of({{"a", {{9}, "aaaaaaaaa"}}}).substr(0, 70));
  fs::create_symlink(folder_ / "outside.safetensors", folder_ / "in/link.safetensors");
  for (const auto& [index, why] : std::map<std::string, std::string>{
           {R"({"a":"../outside.safetensors"})", "../outside.safetensors"},
           {R"({"a":")" + (folder_ / "outside.safetensors").string() + R"("})",
            "is not a name inside the folder"},
           {R"({"a":"link.safetensors"})", "is a link out of the folder"},
           {R"({"a":"none.safetensors"})", "cannot be opened"},
           {R"({"a":"cut.safetensors"})", "not a valid safetensors file"},
           {R"({"b":"whole.safetensors"})", "places tensor \"b\" in this file"},
           {R"({"a":"model.bin"})", "cannot be opened"},
           {R"({"a":1})", "not a valid index"},
           {"", "is empty"},
       }) {
    write_index(index);
    const auto error = test::error_of<CheckpointError>(
        [&] { merge_safetensors(folder_ / "in", folder_ / "out"); });
    EXPECT_THAT(error.message(), HasSubstr(why)) << index;
    EXPECT_FALSE(fs::exists(folder_ / "out")) << index;
  }
  fs::remove(folder_ / "in/model.safetensors.index.json");
  EXPECT_THAT(test::error_of<CheckpointError>([&] {
                merge_safetensors(folder_ / "in", folder_ / "out");
              }).message(),
              HasSubstr("the folder holds no model"));
  write("in/pytorch_model.bin", "archive");
  EXPECT_THAT(test::error_of<CheckpointError>([&] {
                merge_safetensors(folder_ / "in", folder_ / "out");
              }).message(),
              HasSubstr("archives of torch.save()"));
}

TEST_F(MergeWeights, FollowsLinksOutOfTheFolderIfToldTo) {
  fs::create_directory(folder_ / "blobs");
  write("blobs/0123", file_of({{"a", {{1}, "a"}}}));
  fs::create_symlink("../blobs/0123", folder_ / "in/model.safetensors");
  EXPECT_THAT(test::error_of<CheckpointError>([&] {
                merge_safetensors(folder_ / "in", folder_ / "out");
              }).message(),
              HasSubstr("is a link out of the folder"));
  merge_safetensors(folder_ / "in", folder_ / "out", {.links = Links::kFollowed});
  EXPECT_EQ(tensors_of("out/model.safetensors"), (Tensors{{"a", {{1}, "a"}}}));
}

// A state of several ranks, of which each holds a piece of some tensors.
class MergeState : public MergeWeights {
 protected:
  struct Piece {
    std::vector<int64_t> global_shape;
    std::vector<int64_t> start;
  };
  void save(const std::vector<std::pair<Tensors, std::map<std::string, Piece>>>& ranks) {
    CheckpointWriter writer(folder_ / "state");
    Manifest manifest{.library_version = "0.1.0"};
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const auto& [tensors, pieces] = ranks[rank];
      const std::string content = file_of(tensors);
      const auto header = parse_safetensors_header(test::bytes_of(content), "");
      DurableFile file = writer.create("model-0000" + std::to_string(rank + 1) + "-of-0000" +
                                       std::to_string(ranks.size()) + ".safetensors");
      file.write(test::bytes_of(content.substr(0, header.data_begin)));
      for (const SafetensorsEntry& entry : header.entries) {
        file.begin_part(entry.name);
        file.write(test::bytes_of(tensors.at(entry.name).bytes));
      }
      FileRecord record = file.close();
      for (PartRecord& part : record.parts) {
        part.dtype = "U8";
        for (const uint64_t size : tensors.at(part.name).shape) {
          part.shape.push_back(static_cast<int64_t>(size));
        }
        const auto piece = pieces.find(part.name);
        if (piece != pieces.end()) {
          part.shard = ShardRecord{piece->second.global_shape, piece->second.start};
        }
      }
      manifest.files.push_back(record);
    }
    DurableFile other = writer.create("model_1.safetensors");
    other.write(test::bytes_of(file_of({{"a", {{1}, "z"}}})));
    manifest.files.push_back(other.close());
    writer.commit(manifest);
  }
};

TEST_F(MergeState, PutsPiecesTogetherInEveryDimension) {
  save({{{{"rows", {{1, 3}, "abc"}}, {"block", {{2, 2}, "0145"}}, {"own", {{2}, "xy"}}},
         {{"rows", {{3, 3}, {0, 0}}}, {"block", {{3, 4}, {0, 0}}}}},
        {{{"rows", {{2, 3}, "defghi"}}, {"block", {{2, 2}, "2367"}}},
         {{"rows", {{3, 3}, {1, 0}}}, {"block", {{3, 4}, {0, 2}}}}},
        {{{"block", {{1, 4}, "89ab"}}, {"rows", {{0, 3}, ""}}},
         {{"block", {{3, 4}, {2, 0}}}, {"rows", {{3, 3}, {3, 0}}}}}});
  const MergeReport report = merge_safetensors(folder_ / "state", folder_ / "out");
  EXPECT_EQ(report.tensors, 3U);
  EXPECT_EQ(tensors_of("out/model.safetensors"), (Tensors{{"block", {{3, 4}, "0123456789ab"}},
                                                          {"own", {{2}, "xy"}},
                                                          {"rows", {{3, 3}, "abcdefghi"}}}));
}

TEST_F(MergeState, RefusesPiecesThatOverlapOrAreMissing) {
  const auto refusal = [&] {
    return test::error_of<CheckpointError>(
               [&] { merge_safetensors(folder_ / "state", folder_ / "out"); })
        .message();
  };
  save({{{{"a", {{2}, "ab"}}}, {{"a", {{4}, {0}}}}}});
  EXPECT_EQ(refusal(), "tensor \"a\" is not whole: its pieces have 2 elements of 4");
  save({{{{"a", {{2}, "ab"}}}, {{"a", {{4}, {0}}}}}, {{{"a", {{2}, "bc"}}}, {{"a", {{4}, {1}}}}}});
  EXPECT_EQ(refusal(), "tensor \"a\" is not whole: two pieces of it overlap");
  save({{{{"a", {{2}, "ab"}}}, {{"a", {{4}, {0}}}}}, {{{"a", {{2}, "cd"}}}, {{"a", {{5}, {2}}}}}});
  EXPECT_EQ(refusal(), "the pieces of tensor \"a\" are of different tensors");
  save({{{{"a", {{2}, "ab"}}}, {}}, {{{"a", {{2}, "ab"}}}, {}}});
  EXPECT_EQ(refusal(), "tensor \"a\" is in another file too");
}

TEST_F(MergeState, RefusesADamagedStateAndNeverTakesItsFilesAway) {
  save({{{{"a", {{2}, "ab"}}}, {}}});
  EXPECT_EQ(test::error_of<UsageError>([&] {
              merge_safetensors(folder_ / "state", folder_ / "out", {.remove_source = true});
            }).message(),
            "the files of a state directory cannot be removed one by one");
  const std::string name = "state/model-00001-of-00001.safetensors";
  std::string bytes = read(name);
  bytes.back() = 'B';
  write(name, bytes);
  EXPECT_THAT(test::error_of<CheckpointError>([&] {
                merge_safetensors(folder_ / "state", folder_ / "out");
              }).message(),
              HasSubstr("the state is damaged: model-00001-of-00001.safetensors, tensor a"));
}

}  // namespace
}  // namespace accelerate::files

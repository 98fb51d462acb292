// Folders of torch.distributed.checkpoint: what is read of them, and what is refused.
#include "files/dcp/dcp_folder.h"

#include <gmock/gmock.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "files/dcp/dcp_metadata.h"
#include "files/merge/merge_weights.h"
#include "files/safetensors/safetensors_header.h"
#include "unit/files/dcp_files.h"
#include "unit/files/safetensors_files.h"

namespace accelerate::files {
namespace {

namespace fs = std::filesystem;
namespace py = test::py;
using test::DcpFiles;
using testing::ElementsAre;
using testing::HasSubstr;

// Bytes that differ: 4 for each element.
std::string numbered(int first, int count) {
  std::string bytes;
  for (int i = first; i < first + count; ++i) bytes += py::number_bytes(static_cast<uint32_t>(i));
  return bytes;
}

class DcpFolder : public test::ScratchFolder {
 protected:
  // A matrix of 4 rows on two ranks and a scalar.
  DcpFiles model() const {
    DcpFiles files;
    files.tensors.push_back({"model.w", py::kFloat, {4, 3}, {}});
    files.add_chunk({0, 0}, {2, 3}, numbered(0, 6), 0);
    files.add_chunk({2, 0}, {2, 3}, numbered(6, 6), 1);
    files.tensors.push_back({"model.count", py::kLong, {}, {}});
    files.add_chunk({}, {}, py::number_bytes(uint64_t{7}), 1);
    files.paths = {{"model.w", {"model", "w"}}, {"model.count", {"model", "count"}}};
    return files;
  }

  fs::path written(const DcpFiles& files) const {
    const fs::path folder = folder_ / "in";
    fs::remove_all(folder);
    files.write(folder);
    return folder;
  }

  std::string bytes_of(const PiecedModel& model, const std::string& name) const {
    for (const PiecedTensor& tensor : model.tensors) {
      if (tensor.name != name) continue;
      test::MemorySink sink;
      write_pieces(model, tensor, sink);
      return sink.text;
    }
    return "none of that name";
  }

  std::string refusal(const DcpFiles& files) const {
    const fs::path folder = written(files);
    const auto error = test::error_of<CheckpointError>([&] { read_dcp_folder(folder); });
    EXPECT_THAT(error.where(), HasSubstr(folder_.string()));
    EXPECT_FALSE(error.hint().empty());
    return error.message();
  }

  std::string refusal(const std::function<void(DcpFiles&)>& damage) const {
    DcpFiles files = model();
    damage(files);
    return refusal(files);
  }
};

TEST_F(DcpFolder, TensorsHaveTheNamesOfTheModelAndAllTheirRows) {
  const DcpState state = read_dcp_folder(written(model()));
  EXPECT_FALSE(state.is_optimizer);
  EXPECT_EQ(bytes_of(state.model, "w"), numbered(0, 12));
  EXPECT_EQ(bytes_of(state.model, "count"), py::number_bytes(uint64_t{7}));
  EXPECT_EQ(state.model.metadata.at("format"), "pt");
  EXPECT_EQ(state.model.paths.back().filename(), ".metadata");
  EXPECT_EQ(state.model.paths.size(), 3U);
}

TEST_F(DcpFolder, BlocksOfAMeshOfTwoDimensionsAndOneThatIsNotRowMajorArePutTogether) {
  DcpFiles files;
  files.tensors.push_back({"w", py::kFloat, {3, 4}, {}});
  files.add_chunk({0, 0}, {2, 2}, numbered(0, 2) + numbered(4, 2), 0);
  // Column by column: 2 6 3 7.
  files.add_chunk({0, 2}, {2, 2}, numbered(2, 1) + numbered(6, 1) + numbered(3, 1) + numbered(7, 1),
                  1, {1, 2});
  files.add_chunk({2, 0}, {1, 2}, numbered(8, 2), 2);
  files.add_chunk({2, 2}, {1, 2}, numbered(10, 2), 3);
  // A rank that has nothing of it.
  files.tensors.back().chunks.push_back({{3, 0}, {0, 4}});
  EXPECT_EQ(bytes_of(read_dcp_folder(written(files)).model, "w"), numbered(0, 12));
}

TEST_F(DcpFolder, ChunksThatSeveralRanksKeepCountOnce) {
  DcpFiles files = model();
  files.tensors[0].chunks.push_back(files.tensors[0].chunks[0]);
  EXPECT_EQ(bytes_of(read_dcp_folder(written(files)).model, "w"), numbered(0, 12));
}

TEST_F(DcpFolder, WhatIsNotATensorIsNamedAndLeftOut) {
  DcpFiles files = model();
  files.add_value("model._extra_state", py::none(), 0);
  files.paths["model._extra_state"] = {"model", "_extra_state"};
  EXPECT_THAT(read_dcp_folder(written(files)).model.left_out, ElementsAre("_extra_state"));
  EXPECT_THAT(merge_safetensors(folder_ / "in", folder_ / "out").left_out,
              ElementsAre("_extra_state"));
}

TEST_F(DcpFolder, KeysThatLeadToSomeOfItStayPartOfTheNames) {
  DcpFiles files = model();
  files.tensors.push_back({"other.b", py::kFloat, {1}, {}});
  files.add_chunk({0}, {1}, numbered(99, 1), 0);
  files.paths["other.b"] = {"other", "b"};
  const PiecedModel all = read_dcp_folder(written(files)).model;
  EXPECT_EQ(bytes_of(all, "model.w"), numbered(0, 12));
  EXPECT_EQ(bytes_of(all, "other.b"), numbered(99, 1));
}

TEST_F(DcpFolder, AnOptimizerHasStateByParameterAndItsGroupsAsJson) {
  DcpFiles files;
  files.tensors.push_back({"optimizer.state.a.b.exp_avg", py::kFloat, {2}, {}});
  files.add_chunk({0}, {1}, numbered(1, 1), 0);
  files.add_chunk({1}, {1}, numbered(2, 1), 1);
  files.paths["optimizer.state.a.b.exp_avg"] = {"optimizer", "state", "a.b", "exp_avg"};
  const auto add_option = [&](const std::string& group, const std::string& option,
                              const py::Value& value) {
    const std::string name = "optimizer.param_groups." + group + "." + option;
    files.add_value(name, value, 1);
    files.paths[name] = {"optimizer", "param_groups", group, option};
  };
  add_option("0", "lr", py::number(0.25));
  add_option("0", "betas", py::tuple({py::number(0.5), py::number(0.75)}));
  add_option("0", "params", py::list({py::text("a.b")}));
  add_option("0", "foreach", py::none());
  add_option("1", "amsgrad", py::boolean(true));
  const DcpState state = read_dcp_folder(written(files));
  EXPECT_TRUE(state.is_optimizer);
  EXPECT_EQ(bytes_of(state.model, "a.b.exp_avg"), numbered(1, 2));
  EXPECT_EQ(nlohmann::json::parse(state.model.metadata.at(kParamGroupsKey)),
            nlohmann::json::parse(
                R"([{"lr":0.25,"betas":[0.5,0.75],"params":["a.b"],"foreach":null},
                    {"amsgrad":true}])"));
  EXPECT_TRUE(state.model.left_out.empty());
}

TEST_F(DcpFolder, RefusesPiecesThatAreMissingOrOverlapOrLieOutside) {
  EXPECT_EQ(refusal([](DcpFiles& files) { files.tensors[0].chunks.pop_back(); }),
            "tensor \"w\" is not whole: its pieces have 6 elements of 12");
  EXPECT_EQ(refusal([](DcpFiles& files) { files.items.pop_back(); }),
            "it does not say where a chunk of \"model.count\" is");
  EXPECT_EQ(refusal([](DcpFiles& files) {
              files.tensors[0].chunks[1].start = {1, 0};
              files.items[1].start = {1, 0};
            }),
            "tensor \"w\" is not whole: two pieces of it overlap");
  EXPECT_EQ(refusal([](DcpFiles& files) {
              files.tensors[0].chunks[1].start = {3, 0};
              files.items[1].start = {3, 0};
            }),
            "tensor \"w\" is not whole: a piece does not lie in it");
  EXPECT_EQ(refusal([](DcpFiles& files) { files.tensors[0].shape = {4}; }),
            "tensor \"w\" is not whole: a piece does not lie in it");
}

TEST_F(DcpFolder, RefusesSizesThatTheFilesDoNotHave) {
  const uint64_t huge = uint64_t{1} << 62U;
  EXPECT_EQ(refusal([&](DcpFiles& files) {
              files.tensors[0].shape = {huge, huge};
            }),
            "tensor \"w\" is not whole: it has too many elements");
  EXPECT_THAT(refusal([&](DcpFiles& files) {
                files.tensors[0].shape = {huge >> 8U, 3};
              }),
              HasSubstr("is not whole: its pieces have 12 elements of"));
  EXPECT_EQ(refusal([&](DcpFiles& files) {
              files.tensors[0].chunks[0].shape = {huge, 3};
            }),
            "a chunk of \"model.w\" has another shape or type than .metadata says");
  EXPECT_EQ(refusal([](DcpFiles& files) { files.tensors[0].type = py::kBfloat; }),
            "a chunk of \"model.w\" has another shape or type than .metadata says");
  // One element, repeated by strides of zero.
  EXPECT_EQ(refusal([](DcpFiles& files) {
              files.tensors.push_back({"model.r", py::kFloat, {1000000}, {}});
              files.add_chunk({0}, {1000000}, numbered(0, 1), 0, {0});
            }),
            "tensor \"model.r\" has more elements than are stored: it repeats them");
}

TEST_F(DcpFolder, RefusesPlacesOutsideOfTheFilesAndBytesThatAreUsedTwice) {
  EXPECT_THAT(refusal([](DcpFiles& files) { files.items[2].offset += 1; }),
              HasSubstr("bytes, and \"model.count\" is said to be at"));
  EXPECT_THAT(refusal([](DcpFiles& files) { files.items[1].offset = uint64_t{1} << 62U; }),
              HasSubstr("is said to be at 4611686018427387904"));
  EXPECT_THAT(refusal([](DcpFiles& files) { files.items[0].length -= 1; }),
              HasSubstr("does not end like a zip file"));
  EXPECT_EQ(refusal([](DcpFiles& files) {
              files.items[2].offset = files.items[1].offset;
              files.items[2].length = files.items[1].length;
            }),
            "two items share the bytes from 0 on");
  EXPECT_EQ(refusal([](DcpFiles& files) { files.items[1].start = files.items[0].start; }),
            "this is not the .metadata of torch.distributed.checkpoint as it is known: a piece of "
            "\"model.w\" is there twice");
}

TEST_F(DcpFolder, RefusesFilesThatAreMissingCutDamagedOrElsewhere) {
  EXPECT_THAT(refusal([](DcpFiles& files) { files.files.erase("__1_0.distcp"); }),
              HasSubstr("\"__1_0.distcp\", which the index names, cannot be opened"));
  EXPECT_THAT(refusal([](DcpFiles& files) { files.files["__1_0.distcp"].resize(300); }),
              HasSubstr("the file has 300 bytes"));
  EXPECT_THAT(refusal([](DcpFiles& files) {
                std::string& bytes = files.files["__0_0.distcp"];
                bytes[bytes.find(numbered(3, 2))] = 'x';
              }),
              HasSubstr("its CRC-32 is not the recorded one"));
  write("secret", "not yours");
  for (const std::string path : {"../secret", "/etc/passwd", "", "a/b"}) {
    EXPECT_THAT(refusal([&](DcpFiles& files) { files.items[0].file = path; }),
                HasSubstr("which is not one of the folder"))
        << path;
  }
  const fs::path folder = written(model());
  fs::rename(folder / "__0_0.distcp", folder_ / "elsewhere");
  fs::create_symlink(folder_ / "elsewhere", folder / "__0_0.distcp");
  EXPECT_THAT(test::error_of<CheckpointError>([&] { read_dcp_folder(folder); }).message(),
              HasSubstr("is a link out of the folder"));
  EXPECT_EQ(bytes_of(read_dcp_folder(folder, Links::kFollowed).model, "w"), numbered(0, 12));
}

TEST_F(DcpFolder, RefusesWhatItDoesNotKnowWithItsName) {
  EXPECT_THAT(
      refusal([](DcpFiles& files) { files.items[0].transforms = py::list({py::text("zstd")}); }),
      HasSubstr("the bytes of \"model.w\" are compressed or encrypted"));
  EXPECT_THAT(refusal([](DcpFiles& files) {
                files.items[0].transforms = py::call("os", "system", {py::text("true")});
              }),
              HasSubstr("'os.system', which is not among the types that are read"));
  EXPECT_THAT(refusal([](DcpFiles& files) { files.tensors[0].type.dtype = "complex128"; }),
              HasSubstr("tensor \"model.w\" has the type complex128"));
  write("in/.metadata", "");
  EXPECT_THAT(test::error_of<CheckpointError>([&] { read_dcp_folder(folder_ / "in"); }).message(),
              HasSubstr("is empty"));
}

// Every prefix of the file, and every byte of it changed: an error or the same kind of answer, and
// never anything else.
TEST_F(DcpFolder, MetadataThatIsCutOrChangedIsRefusedOrRead) {
  const std::string whole = model().metadata();
  size_t refused = 0;
  for (size_t length = 0; length < whole.size(); ++length) {
    try {
      parse_dcp_metadata(test::bytes_of(std::string_view(whole).substr(0, length)), "f");
    } catch (const CheckpointError& error) {
      EXPECT_EQ(error.where(), "f");
      ++refused;
    }
  }
  EXPECT_EQ(refused, whole.size());
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x41);
    try {
      parse_dcp_metadata(test::bytes_of(changed), "f");
    } catch (const CheckpointError& error) {
      EXPECT_EQ(error.where(), "f");
    }
  }
}

TEST_F(DcpFolder, AShortPickleThatNamesTheSameAgainAndAgainIsRefused) {
  // One long name under a thousand short keys, each a few bytes.
  std::string paths = "}(";
  const std::string name(100000, 'n');
  paths += py::text("first") + "(" + py::text(name) + "q\x01t";
  for (int i = 0; i < 2000; ++i) paths += py::text("k" + std::to_string(i)) + "(h\x01t";
  paths += "u";
  const std::string pickle =
      py::pickle(py::object("torch.distributed.checkpoint.metadata", "Metadata",
                            py::dict({{py::text("state_dict_metadata"), "}"},
                                      {py::text("storage_data"), "}"},
                                      {py::text("planner_data"), paths}})));
  EXPECT_THAT(test::error_of<CheckpointError>([&] {
                parse_dcp_metadata(test::bytes_of(pickle), "f");
              }).message(),
              HasSubstr("it repeats the same values too often"));
}

}  // namespace
}  // namespace accelerate::files

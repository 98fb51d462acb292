// Checkpoints of DeepSpeed: the weights that are put together, and what is refused.
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <set>

#include "files/deepspeed/zero_files.h"
#include "files/deepspeed/zero_model.h"
#include "files/merge/merge_weights.h"
#include "files/pieces/float_conversion.h"
#include "unit/files/deepspeed_files.h"
#include "unit/files/safetensors_files.h"

namespace accelerate::files {
namespace {

namespace fs = std::filesystem;
namespace py = test::py;
using test::DeepspeedFiles;
using testing::HasSubstr;

class DeepspeedFolder : public test::ScratchFolder {
 protected:
  static DeepspeedFiles files_of(int stage, size_t ranks) {
    DeepspeedFiles files;
    files.stage = stage;
    files.ranks = ranks;
    files.groups = {{{"a", {3, 5}}, {"b", {7}}, {"c", {}}}, {{"d", {2, 1, 2}}}};
    return files;
  }

  fs::path written(const DeepspeedFiles& files) const {
    const fs::path folder = folder_ / "in";
    fs::remove_all(folder);
    files.write(folder);
    return folder;
  }
  fs::path made(DeepspeedFiles files) const {
    files.make();
    return written(files);
  }

  static std::string bytes_of(const PiecedModel& model, const std::string& name) {
    const auto alias = model.aliases.find(name);
    const std::string& stored = alias == model.aliases.end() ? name : alias->second;
    for (const PiecedTensor& tensor : model.tensors) {
      if (tensor.name != stored) continue;
      test::MemorySink sink;
      write_pieces(model, tensor, sink);
      return sink.text;
    }
    return "none of that name";
  }

  static TensorDtype dtype_of(const PiecedModel& model, const std::string& name) {
    for (const PiecedTensor& tensor : model.tensors) {
      if (tensor.name == name) return tensor.dtype;
    }
    return TensorDtype::kF4;
  }

  static void expect_parameters(const PiecedModel& model, const DeepspeedFiles& files) {
    for (const auto& group : files.groups) {
      for (const auto& parameter : group) {
        EXPECT_TRUE(bytes_of(model, parameter.name) == DeepspeedFiles::numbers_of(parameter))
            << parameter.name << ", stage " << files.stage << ", ranks " << files.ranks;
      }
    }
  }

  std::string refusal(const fs::path& folder, const ZeroModelOptions& options = {}) const {
    const auto error =
        test::error_of<CheckpointError>([&] { read_deepspeed_folder(folder, options); });
    EXPECT_THAT(error.where(), HasSubstr(folder_.string()));
    EXPECT_FALSE(error.hint().empty());
    return error.message();
  }
  std::string refusal(int stage, const std::function<void(DeepspeedFiles&)>& before,
                      const std::function<void(DeepspeedFiles&)>& after = {}) const {
    DeepspeedFiles files = files_of(stage, 2);
    before(files);
    files.make();
    if (after) after(files);
    return refusal(written(files));
  }
};

TEST_F(DeepspeedFolder, TheMastersOfAnyNumberOfRanksAreTheWholeParameters) {
  for (const int stage : {1, 2, 3}) {
    for (const size_t ranks : {1, 2, 3, 4, 7}) {
      const DeepspeedFiles files = files_of(stage, ranks);
      const PiecedModel model = read_deepspeed_folder(made(files));
      expect_parameters(model, files);
      EXPECT_EQ(model.tensors.size(), 4U);
    }
  }
}

TEST_F(DeepspeedFolder, ThePaddingAtTheEndMayBeSavedOrNot) {
  for (const size_t left_off : {0, 1}) {
    DeepspeedFiles files = files_of(2, 2);
    files.groups = {{{"a", {3, 5}}}};
    files.left_off = left_off;
    expect_parameters(read_deepspeed_folder(made(files)), files);
  }
}

TEST_F(DeepspeedFolder, PaddingBehindParametersIsSkipped) {
  DeepspeedFiles files = files_of(1, 2);
  files.groups = {{{"a", {1}, 7}, {"b", {2, 4}, 0}, {"c", {3}, 5}}};
  files.has_paddings = true;
  expect_parameters(read_deepspeed_folder(made(files)), files);
  files.has_paddings = false;
  EXPECT_THAT(refusal(made(files)), HasSubstr("the parameters of a group have 12 elements"));
}

TEST_F(DeepspeedFolder, FrozenParametersKeepTheirTypeAndCanBeLeftOut) {
  for (const int stage : {2, 3}) {
    DeepspeedFiles files = files_of(stage, 3);
    files.frozen = {{"f", {5}, "0123456789", py::kBfloat}};
    const fs::path folder = made(files);
    const PiecedModel model = read_deepspeed_folder(folder);
    expect_parameters(model, files);
    EXPECT_EQ(bytes_of(model, "f"), "0123456789");
    EXPECT_EQ(dtype_of(model, "f"), TensorDtype::kBF16);
    const PiecedModel without = read_deepspeed_folder(folder, {.exclude_frozen_parameters = true});
    EXPECT_EQ(bytes_of(without, "f"), "none of that name");
    expect_parameters(without, files);
  }
}

TEST_F(DeepspeedFolder, BuffersBecomeFloat32UnlessANumberWouldChange) {
  DeepspeedFiles files = files_of(2, 2);
  files.buffers = {{"half", {2}, std::string("\x80\x3f\x00\xc0", 4), py::kBfloat},
                   {"count", {}, py::number_bytes(uint64_t{3}), py::kLong},
                   {"large", {}, py::number_bytes((uint64_t{1} << 24U) + 1), py::kLong},
                   {"mask", {2}, std::string("\x01\x00", 2), py::kBool}};
  const PiecedModel model = read_deepspeed_folder(made(files));
  const auto floats = [](std::vector<float> numbers) {
    std::string bytes;
    for (const float number : numbers) {
      bytes += py::number_bytes(__builtin_bit_cast(uint32_t, number));
    }
    return bytes;
  };
  EXPECT_EQ(bytes_of(model, "half"), floats({1.0F, -2.0F}));
  EXPECT_EQ(bytes_of(model, "count"), floats({3.0F}));
  EXPECT_EQ(bytes_of(model, "mask"), floats({1.0F, 0.0F}));
  EXPECT_EQ(dtype_of(model, "mask"), TensorDtype::kF32);
  EXPECT_EQ(dtype_of(model, "large"), TensorDtype::kI64);
  EXPECT_EQ(bytes_of(model, "large"), py::number_bytes((uint64_t{1} << 24U) + 1));
}

TEST_F(DeepspeedFolder, SharedParametersAreOtherNames) {
  DeepspeedFiles files = files_of(3, 2);
  files.shared = {{"head", "a"}, {"lost", "nothing"}};
  const PiecedModel model = read_deepspeed_folder(made(files));
  EXPECT_EQ(model.aliases, (std::map<std::string, std::string>{{"head", "a"}}));
}

TEST_F(DeepspeedFolder, ATagIsTakenInPlaceOfTheLatest) {
  DeepspeedFiles files = files_of(2, 2);
  made(files);
  DeepspeedFiles other = files_of(3, 4);
  other.tag = "other";
  other.groups[0][0].name = "z";
  other.make();
  other.write(folder_ / "in");
  const fs::path folder = folder_ / "in";
  expect_parameters(read_deepspeed_folder(folder), other);
  expect_parameters(read_deepspeed_folder(folder, {.tag = "global_step7"}), files);
  expect_parameters(read_deepspeed_folder(folder / "global_step7"), files);
  EXPECT_TRUE(is_deepspeed_folder(folder));
  EXPECT_TRUE(is_deepspeed_folder(folder / "other"));
  EXPECT_FALSE(is_deepspeed_folder(folder_));
  EXPECT_THAT(refusal(folder, {.tag = "nothing"}), HasSubstr("no checkpoint of DeepSpeed"));
  EXPECT_THAT(refusal(folder, {.tag = "../in/other"}), HasSubstr("is not the name of a folder"));
  write("in/latest", "../../etc");
  EXPECT_THAT(refusal(folder), HasSubstr("says \"../../etc\""));
  // Beside a model of another format, only if it is asked for.
  write("in/latest", "other");
  write("in/model.safetensors",
        test::safetensors_file(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1));
  EXPECT_EQ(merge_safetensors(folder, folder_ / "out").tensors, 1U);
  EXPECT_EQ(merge_safetensors(folder, folder_ / "out2", {.deepspeed_tag = "other"}).tensors, 4U);
}

TEST_F(DeepspeedFolder, OptionsOfDeepSpeedNeedDeepSpeedAndItsFilesStay) {
  write("m.safetensors",
        test::safetensors_file(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1));
  EXPECT_THAT(test::error_of<UsageError>([&] {
                merge_safetensors(folder_ / "m.safetensors", folder_ / "o",
                                  {.exclude_frozen_parameters = true});
              }).message(),
              HasSubstr("only a checkpoint of DeepSpeed"));
  const fs::path folder = made(files_of(2, 2));
  EXPECT_THAT(test::error_of<UsageError>([&] {
                merge_safetensors(folder, folder_ / "o", {.remove_source = true});
              }).message(),
              HasSubstr("hold the state of the optimizer too"));
}

TEST_F(DeepspeedFolder, RefusesRanksThatAreMissingOrOfAnotherRun) {
  const auto nothing = [](DeepspeedFiles&) {};
  const std::string rank_0 = "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt";
  const std::string rank_1 = "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt";
  EXPECT_EQ(refusal(2, nothing, [&](DeepspeedFiles& files) { files.written.erase(rank_1); }),
            "it was saved by 2 ranks, and the files of 1 are here");
  EXPECT_EQ(refusal(2, nothing, [&](DeepspeedFiles& files) { files.written.erase(rank_0); }),
            "the optimizer states of rank 0 are missing");
  EXPECT_EQ(refusal(3, nothing,
                    [](DeepspeedFiles& files) {
                      files.written.erase("zero_pp_rank_1_mp_rank_00_model_states.pt");
                    }),
            "ZeRO stage 3 of 2 ranks leaves 2 files of model states, not 1");
  EXPECT_EQ(
      refusal(2, nothing,
              [](DeepspeedFiles& files) { files.written.erase("mp_rank_00_model_states.pt"); }),
      "the model states of rank 0 are missing");
  EXPECT_THAT(refusal(2, nothing,
                      [&](DeepspeedFiles& files) {
                        files.written[rank_1] = files_of(3, 2).optimizer_file(1);
                      }),
              HasSubstr("it does not belong to the file of rank 0"));
  EXPECT_EQ(refusal(2, nothing,
                    [&](DeepspeedFiles& files) {
                      files.written["zero_pp_rank_1_mp_rank_00_optim_states.pt"] = "x";
                    }),
            "rank 1 has two files");
  EXPECT_THAT(refusal(2, nothing,
                      [](DeepspeedFiles& files) {
                        files.written["bf16_zero_pp_rank_0_mp_rank_01_optim_states.pt"] = "x";
                      }),
              HasSubstr("parallel models or experts"));
  EXPECT_THAT(
      refusal(2, nothing,
              [](DeepspeedFiles& files) { files.written["layer_00-model_states.pt"] = "x"; }),
      HasSubstr("parallel models or experts"));
  EXPECT_THAT(refusal(2, nothing,
                      [&](DeepspeedFiles& files) {
                        files.written.erase(rank_0);
                        files.written.erase(rank_1);
                      }),
              HasSubstr("no rank has left the file of its optimizer"));
}

TEST_F(DeepspeedFolder, RefusesPartsThatDoNotMakeTheParameters) {
  const auto with = [](int stage, std::vector<uint64_t> shape) {
    DeepspeedFiles files = files_of(stage, 2);
    files.make();
    files.groups[0][0].shape = std::move(shape);
    for (auto& [name, bytes] : files.written) {
      if (name.find("model") != name.npos) bytes = files.model_file(0);
    }
    return files;
  };
  const uint64_t huge = uint64_t{1} << 61U;
  for (const int stage : {2, 3}) {
    EXPECT_THAT(refusal(written(with(stage, {300}))), HasSubstr("elements left for \"")) << stage;
    EXPECT_THAT(refusal(written(with(stage, {2}))), HasSubstr("elements")) << stage;
    EXPECT_THAT(refusal(written(with(stage, {huge, huge}))), HasSubstr("has too many elements"));
    EXPECT_THAT(refusal(written(with(stage, {huge}))), HasSubstr("element"));
  }
  EXPECT_THAT(refusal(2, [](DeepspeedFiles& files) { files.groups[1][0].name = "a"; }),
              HasSubstr("two tensors are named \"a\""));
}

TEST_F(DeepspeedFolder, RefusesDamagedFilesAndWhatItDoesNotKnow) {
  for (const std::string name :
       {"mp_rank_00_model_states.pt", "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"}) {
    EXPECT_THAT(refusal(
                    2, [](DeepspeedFiles&) {},
                    [&](DeepspeedFiles& files) { files.written[name].resize(500); }),
                HasSubstr("does not end like a zip file"))
        << name;
  }
  // In the weights, which are read; the moments are not.
  EXPECT_THAT(refusal(
                  2, [](DeepspeedFiles&) {},
                  [](DeepspeedFiles& files) {
                    auto& bytes = files.written["bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"];
                    bytes[bytes.find(DeepspeedFiles::numbers_of("a", 15).substr(0, 20))] ^= 1;
                  }),
              HasSubstr("its CRC-32 is not the recorded one"));
  EXPECT_THAT(refusal(2,
                      [](DeepspeedFiles& files) {
                        files.client_state = py::call("os", "system", {py::text("true")});
                      }),
              HasSubstr("'os.system', which is not among the types that are read"));
  EXPECT_THAT(refusal(2, [](DeepspeedFiles& files) { files.stage_value = py::integer(0); }),
              HasSubstr("it is of ZeRO stage 0"));
  EXPECT_THAT(refusal(2, [](DeepspeedFiles& files) { files.stage_value = py::text("2"); }),
              HasSubstr("zero_stage is not an integer"));
}

// Bytes of the pickles changed where no checksum tells: an error, or tensors that lie in the files.
TEST_F(DeepspeedFolder, WhatIsChangedIsRefusedOrReadAndNothingElse) {
  for (const int stage : {2, 3}) {
    DeepspeedFiles files = files_of(stage, 2);
    files.buffers = {{"count", {}, py::number_bytes(uint64_t{3}), py::kLong}};
    files.frozen = {{"f", {5}, "0123456789", py::kBfloat}};
    files.shared = {{"head", "a"}};
    files.make();
    const fs::path folder = written(files);
    int refused = 0;
    for (const auto& [name, bytes] : files.written) {
      const std::string plain = py::without_checksums(bytes);
      const size_t begin = plain.find("\x80\x02");
      for (size_t at = begin; at < plain.find("byteorder"); at += 11) {
        std::string changed = plain;
        changed[at] = static_cast<char>(changed[at] ^ 0x21);
        write("in/" + files.tag + "/" + name, changed);
        try {
          const PiecedModel model = read_deepspeed_folder(folder);
          for (const PiecedTensor& tensor : model.tensors) bytes_of(model, tensor.name);
        } catch (const CheckpointError& error) {
          EXPECT_FALSE(error.message().empty());
          ++refused;
        }
      }
      write("in/" + files.tag + "/" + name, bytes);
    }
    EXPECT_GT(refused, 100);
    expect_parameters(read_deepspeed_folder(folder), files);
  }
}

TEST(FloatConversion, HasEveryHalfAsTorchHasIt) {
  const auto value = [](uint16_t bits) {
    return to_floats(TensorDtype::kF16, test::bytes_of(py::number_bytes(bits)))[0];
  };
  EXPECT_EQ(value(0x3c00), 1.0F);
  EXPECT_EQ(value(0xc000), -2.0F);
  EXPECT_EQ(value(0x7bff), 65504.0F);
  EXPECT_EQ(value(0x0400), 0x1p-14F);
  EXPECT_EQ(value(0x0001), 0x1p-24F);
  EXPECT_EQ(value(0x83ff), -1023 * 0x1p-24F);
  EXPECT_EQ(value(0x7c00), INFINITY);
  EXPECT_TRUE(std::isnan(value(0x7e01)));
  EXPECT_TRUE(std::signbit(value(0x8000)));
}

TEST(FloatConversion, SaysWhatFloat32DoesNotHave) {
  const auto fits = [](TensorDtype dtype, auto number) {
    return fit_floats(dtype, test::bytes_of(py::number_bytes(number)));
  };
  EXPECT_TRUE(fits(TensorDtype::kI64, static_cast<uint64_t>(-(int64_t{1} << 24))));
  EXPECT_FALSE(fits(TensorDtype::kI64, (uint64_t{1} << 24U) + 1));
  EXPECT_FALSE(fits(TensorDtype::kI64, static_cast<uint64_t>(INT64_MAX)));
  EXPECT_TRUE(fits(TensorDtype::kI64, static_cast<uint64_t>(INT64_MIN)));
  EXPECT_FALSE(fits(TensorDtype::kU64, UINT64_MAX));
  EXPECT_FALSE(fits(TensorDtype::kI32, static_cast<uint32_t>(INT32_MAX)));
  EXPECT_TRUE(fits(TensorDtype::kF64, __builtin_bit_cast(uint64_t, 0.5)));
  EXPECT_FALSE(fits(TensorDtype::kF64, __builtin_bit_cast(uint64_t, 0.1)));
  EXPECT_TRUE(fits(TensorDtype::kF64, __builtin_bit_cast(uint64_t, double{NAN})));
  EXPECT_FALSE(is_convertible(TensorDtype::kC64));
  EXPECT_FALSE(is_convertible(TensorDtype::kF8E4M3));
}

}  // namespace
}  // namespace accelerate::files

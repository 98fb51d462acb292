// Values to files of torch.save and back.
#include "accelerate/torch_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "accelerate/errors.h"
#include "checkpoint/archive/torch_archive_writer.h"
#include "launch/scratch_folder.h"
#include "unit/files/torch_archive_bytes.h"

namespace accelerate {
namespace {

using ::testing::HasSubstr;

class TorchArchive : public ::testing::Test {
 protected:
  std::filesystem::path path(const std::string& name = "file.pt") const {
    return folder_.path() / name;
  }
  TorchValue round_trip(const TorchValue& value) const {
    save_torch_archive(path(), value);
    return load_torch_archive(path());
  }
  std::filesystem::path written(const std::string& bytes) const {
    std::ofstream(path("written.pt"), std::ios::binary) << bytes;
    return path("written.pt");
  }

 private:
  test::ScratchFolder folder_;
};

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const CheckpointError& error) {
    return error.message();
  }
  return "nothing was thrown";
}

TEST_F(TorchArchive, EveryKindOfValueComesBack) {
  const std::vector<TorchValue> values{
      TorchValue(),
      true,
      false,
      0,
      255,
      256,
      -1,
      std::numeric_limits<int32_t>::min(),
      std::numeric_limits<int64_t>::max(),
      std::numeric_limits<int64_t>::min(),
      0.1,
      -0.0,
      std::numeric_limits<double>::infinity(),
      "",
      "text",
      "\xc3\xa4\xf0\x9f\x98\x80",
      TorchBytes{std::string("\x00\x7f\x80\xff", 4)},
      TorchBytes{},
      TorchBigInteger{"18446744073709551615"},
      TorchBigInteger{"-170141183460469231731687303715884105728"},
      TorchValue::List{},
      TorchValue::List{1, "two", TorchValue::List{3.0}},
      TorchTuple{},
      TorchTuple{{1, TorchTuple{{2}}}},
      TorchSet{{1, "a"}},
      TorchSize{},
      TorchSize{{2, 3}},
      at::kBFloat16,
      c10::Device(c10::kCPU),
      c10::Device(c10::kCUDA, 1),
      TorchDict(),
      TorchDict(TorchDict::Kind::kOrderedDict),
      TorchDict({{"b", 1}, {"a", 2}}, TorchDict::Kind::kOrderedDict),
      TorchDict{{"text", 1},
                {2, "integer"},
                {0.5, "number"},
                {TorchValue(), "none"},
                {TorchTuple{{1, "x"}}, "tuple"},
                {TorchBytes{"k"}, "bytes"},
                {at::kFloat, "type"}}};
  for (const TorchValue& value : values) {
    EXPECT_TRUE(round_trip(value) == value) << value.kind();
  }
  EXPECT_TRUE(round_trip(TorchValue::List(values)) == TorchValue::List(values));
}

TEST_F(TorchArchive, EveryTypeOfElementsComesBackBitForBit) {
  for (const at::ScalarType type :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
        at::kChar, at::kByte, at::kComplexFloat, at::kComplexDouble, at::kUInt16, at::kUInt32,
        at::kUInt64, at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kFloat8_e4m3fnuz,
        at::kFloat8_e5m2fnuz, at::kFloat8_e8m0fnu}) {
    const at::Tensor bytes = torch::randint(0, 255, {48}, at::kByte);
    const at::Tensor tensor = bytes.view(type);
    const TorchValue back = round_trip(tensor);
    EXPECT_EQ(back.as_tensor().scalar_type(), type);
    EXPECT_TRUE(back == TorchValue(tensor)) << c10::toString(type);
  }
  const at::Tensor truths = torch::tensor({true, false, true});
  EXPECT_TRUE(round_trip(truths) == TorchValue(truths));
}

TEST_F(TorchArchive, ShapesStridesAndOffsetsComeBack) {
  const at::Tensor base = torch::arange(24, at::kFloat).view({2, 3, 4});
  for (const at::Tensor& tensor :
       {base, base.transpose(0, 2), base.select(0, 1), base.slice(2, 1, 4, 2), base.sum(),
        torch::empty({0, 3}), torch::ones({1}).expand({3, 4})}) {
    const at::Tensor back = round_trip(tensor).as_tensor();
    EXPECT_TRUE(at::equal(back, tensor));
    EXPECT_EQ(back.strides(), tensor.strides());
    EXPECT_EQ(back.storage_offset(), tensor.storage_offset());
  }
}

TEST_F(TorchArchive, ConjugateAndNegativeViewsComeBackAsTheyAre) {
  const at::Tensor base = torch::view_as_complex(torch::randn({3, 2}));
  const at::Tensor conjugate = base.conj();
  const at::Tensor negative = at::imag(conjugate);
  ASSERT_TRUE(conjugate.is_conj() && negative.is_neg());
  const TorchValue back = round_trip(TorchValue::List{conjugate, negative});
  EXPECT_TRUE(back.as_sequence()[0].as_tensor().is_conj());
  EXPECT_TRUE(back.as_sequence()[1].as_tensor().is_neg());
  EXPECT_TRUE(at::equal(back.as_sequence()[0].as_tensor(), conjugate));
  EXPECT_TRUE(at::equal(back.as_sequence()[1].as_tensor(), negative));
}

TEST_F(TorchArchive, TensorsThatShareMemoryShareItAgain) {
  const at::Tensor base = torch::arange(6, at::kInt);
  const TorchValue back =
      round_trip(TorchValue::List{base, base.slice(0, 2, 4), base.view(at::kFloat)});
  const at::Tensor whole = back.as_sequence()[0].as_tensor();
  const at::Tensor part = back.as_sequence()[1].as_tensor();
  EXPECT_TRUE(part.is_alias_of(whole));
  EXPECT_TRUE(back.as_sequence()[2].as_tensor().is_alias_of(whole));
  EXPECT_EQ(back.as_sequence()[2].as_tensor().scalar_type(), at::kFloat);
  part.fill_(-7);
  EXPECT_TRUE(at::equal(whole, torch::tensor({0, 1, -7, -7, 4, 5}, at::kInt)));
}

TEST_F(TorchArchive, MemoryOfAPartialElementComesBack) {
  const at::Tensor bytes = torch::arange(7, at::kByte);
  const at::Tensor shorts = bytes.slice(0, 0, 6).view(at::kShort);  // of seven bytes of memory
  const TorchValue back = round_trip(TorchValue::List{shorts, bytes});
  EXPECT_TRUE(back == (TorchValue::List{shorts, bytes}));
}

TEST_F(TorchArchive, LoadedTensorsAreTheFileUntilTheyAreWrittenTo) {
  const at::Tensor saved = torch::arange(64, at::kFloat);
  save_torch_archive(path(), saved);
  at::Tensor loaded = load_torch_archive(path()).as_tensor();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(loaded.data_ptr()) % 64, 0U);
  loaded.fill_(-1);
  EXPECT_TRUE(at::equal(load_torch_archive(path()).as_tensor(), saved)) << "the file was changed";
  // The mapping outlives the name and the value it came from.
  std::filesystem::remove(path());
  EXPECT_EQ(loaded.sum().item<float>(), -64);
}

TEST_F(TorchArchive, DataThatIsNotAlignedIsReadToo) {
  // Python's zipfile would write so: no padding before the data.
  test::StringSink sink;
  write_torch_archive(sink, torch::arange(4, at::kFloat));
  std::string text = sink.text;
  const size_t local = text.find("archive/data/0") - files::zip::kLocalHeaderBytes;
  const auto extra = files::zip::number_at<uint16_t>(test::bytes_of(text), local + 28);
  // Three bytes less of padding, which go behind the data.
  const size_t data =
      local + files::zip::kLocalHeaderBytes + std::string("archive/data/0").size() + extra;
  const std::string values = text.substr(data, 16);
  text = test::patched(text, local + 28, test::number_bytes(static_cast<uint16_t>(extra - 3)));
  text = test::patched(text, data - 3, values);
  EXPECT_TRUE(load_torch_archive(written(text)) == TorchValue(torch::arange(4, at::kFloat)));
}

TEST_F(TorchArchive, RequiresGradIsNotRestoredAndDoesNotHinderWriting) {
  const at::Tensor parameter = torch::ones({2}, torch::requires_grad());
  const at::Tensor back = round_trip(parameter).as_tensor();
  EXPECT_FALSE(back.requires_grad());
  EXPECT_TRUE(at::equal(back, torch::ones({2})));
}

TEST_F(TorchArchive, WhatTheFormatCannotHoldIsRefusedWithItsPlace) {
  const auto refusal = [&](const TorchValue& value) {
    return message_of([&] { save_torch_archive(path(), value); });
  };
  EXPECT_EQ(refusal(at::Tensor()), "torch.save's format cannot hold an undefined tensor");
  EXPECT_THAT(refusal(torch::empty({2}, at::kMeta)), HasSubstr("a tensor without plain memory"));
  EXPECT_THAT(refusal(torch::ones({2}).to_sparse()), HasSubstr("a tensor without plain memory"));
  EXPECT_EQ(
      refusal("\xff"),
      "torch.save's format cannot hold a string that is not valid UTF-8, or is longer than 4 GiB");
  EXPECT_THAT(refusal(TorchNumpyArray{torch::ones({1})}), HasSubstr("a NumPy array"));
  EXPECT_THAT(refusal(TorchBigInteger{"12x"}), HasSubstr("the large integer '12x'"));
  EXPECT_THAT(refusal(TorchDict{{TorchValue::List{}, 1}}), HasSubstr("a dict with the key a list"));
  EXPECT_THAT(refusal(TorchDict{{torch::ones({1}), 1}}), HasSubstr("a dict with the key a tensor"));
  EXPECT_FALSE(std::filesystem::exists(path())) << "a file was left behind";
  try {
    save_torch_archive(path(), TorchDict{{"state", TorchDict{{3, TorchTuple{{1, at::Tensor()}}}}}});
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.where(), "['state'][3][1]");
  }
}

TEST_F(TorchArchive, ValuesThatLieTooDeepAreNeitherWrittenNorRead) {
  TorchValue deep = 1;
  for (int i = 0; i < 200; ++i) deep = TorchValue::List{deep};
  EXPECT_TRUE(round_trip(deep) == deep);
  deep = TorchValue::List{deep};
  EXPECT_THAT(message_of([&] { save_torch_archive(path(), deep); }), HasSubstr("so deep"));
  const std::string pickle = "\x80\x02" + std::string(201, ']') + std::string(200, 'a') + ".";
  EXPECT_THAT(message_of([&] { load_torch_archive(written(test::archive_of(pickle))); }),
              HasSubstr("too deep"));
  // A list that holds itself.
  EXPECT_THAT(message_of([&] {
                load_torch_archive(
                    written(test::archive_of(std::string("\x80\x02]q\x00h\x00"
                                                         "a.",
                                                         9))));
              }),
              HasSubstr("too deep"));
}

TEST_F(TorchArchive, SharedPartsCannotGrowWithoutBound) {
  // Each list holds the one before twice: 2 to the 60 values from some hundred bytes.
  std::string pickle = "\x80\x02]q";
  pickle += '\0';
  for (char i = 0; i < 60; ++i) {
    pickle += std::string("0](h") + i + "h" + i + "eq" + static_cast<char>(i + 1);
  }
  EXPECT_THAT(message_of([&] { load_torch_archive(written(test::archive_of(pickle + "."))); }),
              HasSubstr("repeats the same values too often"));
}

TEST_F(TorchArchive, FilesThatAreNoneOfTorchSaveAreRefusedInWords) {
  EXPECT_THAT(message_of([&] { load_torch_archive(path("missing.pt")); }),
              HasSubstr("the torch archive cannot be opened"));
  EXPECT_THAT(message_of([&] { load_torch_archive(written("\x80\x02\x8a\x0al\xfc\x9c")); }),
              HasSubstr("as torch.save wrote before torch 1.6"));
  EXPECT_THAT(message_of([&] { load_torch_archive(written("hello")); }),
              HasSubstr("it does not begin like a zip file"));
  const auto zip_of = [](std::initializer_list<std::pair<const char*, const char*>> entries) {
    test::StringSink sink;
    files::ZipWriter zip(sink);
    for (const auto& [name, contents] : entries) zip.add_entry(name, contents);
    zip.finish();
    return sink.text;
  };
  EXPECT_EQ(message_of([&] {
              load_torch_archive(
                  written(zip_of({{"a/data.pkl", "\x80\x02N."}, {"a/constants.pkl", ""}})));
            }),
            "the archive is a TorchScript module, not a file of torch.save");
  EXPECT_EQ(
      message_of([&] {
        load_torch_archive(written(zip_of({{"a/data.pkl", "\x80\x02N."}, {"a/byteorder", "big"}})));
      }),
      "the archive was written on a big-endian machine");
  EXPECT_EQ(message_of([&] {
              load_torch_archive(written(zip_of({{"a/other", "x"}})));
            }),
            "the archive has no entry 'a/data.pkl'");
  EXPECT_TRUE(load_torch_archive(written(zip_of({{"a/data.pkl", "\x80\x02N."}}))).is_none());
}

TEST_F(TorchArchive, AClassIsNoValue) {
  const auto refusal = [&](const std::string& body) {
    return message_of(
        [&] { load_torch_archive(written(test::archive_of("\x80\x02" + body + "."))); });
  };
  EXPECT_THAT(refusal("ccollections\nOrderedDict\n"),
              HasSubstr("a class or a function is not a value"));
  EXPECT_THAT(refusal("cposix\nsystem\n"), HasSubstr("'posix.system'"));
}

TEST_F(TorchArchive, TheSameValueGivesTheSameBytesUnderAnyFileName) {
  const TorchValue value = TorchDict{{"a", torch::ones({3})}};
  test::StringSink first;
  test::StringSink second;
  write_torch_archive(first, value, "name");
  write_torch_archive(second, value, "name");
  EXPECT_EQ(first.text, second.text);
  EXPECT_NE(first.text.find("name/data.pkl"), std::string::npos);
}

TEST_F(TorchArchive, FilesMayHaveAnyName) {
  for (const char* name : {"gr\xc3\xb6\xc3\x9f"
                           "e.pt",
                           ".x.pt"}) {
    save_torch_archive(path(name), 7);
    EXPECT_EQ(load_torch_archive(path(name)), TorchValue(7)) << name;
  }
}

TEST_F(TorchArchive, RefusesBoolsThatAreNeitherTrueNorFalse) {
  const auto bools = [](int64_t odd) {
    const at::Tensor bytes = torch::ones({3, 2}, at::kByte);
    bytes[1][0] = odd;
    return bytes.view(at::kBool).t();
  };
  EXPECT_EQ(round_trip(bools(0)), TorchValue(bools(0)));
  EXPECT_EQ(message_of([&] {
              round_trip(TorchDict{{"mask", bools(2)}});
            }),
            "a tensor of bools holds the byte 2 at element 1");
}

TEST_F(TorchArchive, ChecksBoolsThatOverlapWithoutUnfoldingThem) {
  const at::Tensor one = torch::ones({1}, at::kBool);
  const at::Tensor many = one.expand({int64_t{1} << 50});
  save_torch_archive(path(), many);
  EXPECT_EQ(load_torch_archive(path()).as_tensor().sizes(), many.sizes());
  const at::Tensor odd = torch::full({2}, 3, at::kByte).view(at::kBool);
  EXPECT_EQ(message_of([&] {
              round_trip(odd.expand({int64_t{1} << 50, 2}));
            }),
            "a tensor of bools holds the byte 3 at element 0");
}

TEST_F(TorchArchive, RefusesBoolsOfNumpyThatAreNeitherTrueNorFalse) {
  const auto array = [](const std::string& bytes) {
    const std::string type = "cnumpy\ndtype\nX" + test::number_bytes(2U) +
                             "b1\x89\x88\x87R(K\x03X" + test::number_bytes(1U) +
                             "|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK" + std::string(1, '\0') +
                             "tb";
    const std::string pickle =
        "\x80\x02"
        "cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK" +
        std::string(1, '\0') +
        "\x85"
        "C\x01"
        "b\x87R(K\x01K\x02\x85" +
        type +
        "\x89"
        "C\x02" +
        bytes + "tb.";
    return test::archive_of(pickle);
  };
  EXPECT_TRUE(torch::equal(std::get<TorchNumpyArray>(
                               load_torch_archive(written(array(std::string("\1\0", 2)))).variant())
                               .values,
                           torch::tensor({true, false})));
  EXPECT_EQ(message_of([&] { load_torch_archive(written(array("\1\7"))); }),
            "an array of bools holds the byte 7 at element 1");
}

// Takes note of the parts.
class PartsSink final : public files::ByteSink {
 public:
  void write(std::span<const std::byte> bytes) override {
    if (!in_part_) return;
    parts.back().second.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void begin_part(std::string_view name) override {
    parts.emplace_back(name, "");
    in_part_ = true;
  }
  void end_part() override { in_part_ = false; }
  std::vector<std::pair<std::string, std::string>> parts;

 private:
  bool in_part_ = false;
};

TEST_F(TorchArchive, TheMemoryOfEachTensorIsAPartThatIsNamedAfterItsPlace) {
  const at::Tensor base = torch::tensor({1, 2, 3}, at::kByte);
  PartsSink sink;
  write_torch_archive(sink, TorchDict{{"state", TorchDict{{0, TorchDict{{"a", base}}},
                                                          {1, TorchDict{{"a", base.slice(0, 1)}}},
                                                          {2, torch::zeros({0})}}},
                                      {"list", TorchValue::List{torch::tensor({4}, at::kByte)}}});
  using Part = std::pair<std::string, std::string>;
  EXPECT_THAT(sink.parts,
              ::testing::ElementsAre(Part("['state'][0]['a']", "\1\2\3"), Part("['state'][2]", ""),
                                     Part("['list'][0]", "\4")));
}

}  // namespace
}  // namespace accelerate

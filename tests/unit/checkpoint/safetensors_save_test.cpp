// Writing tensors as safetensors files.
#include <accelerate/safetensors.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include "checkpoint/model/safetensors_stream.h"
#include "unit/files/safetensors_files.h"

namespace accelerate {
namespace {

using checkpoint::safetensors_file_size;
using checkpoint::write_safetensors;
using test::error_of;
using test::MemorySink;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

using SafetensorsSave = test::ScratchFolder;

std::string_view bytes_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()};
}

TEST_F(SafetensorsSave, WritesEveryTypeThatTorchAndTheFormatShareBitForBit) {
  NamedTensors tensors;
  const at::Tensor bytes = torch::randint(0, 256, {2, 3, 16}, torch::kByte);
  for (const auto dtype : {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kUInt16,
                           at::kUInt32, at::kUInt64, at::kHalf, at::kBFloat16, at::kFloat,
                           at::kDouble, at::kComplexFloat, at::kFloat8_e4m3fn, at::kFloat8_e5m2,
                           at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz, at::kFloat8_e8m0fnu}) {
    tensors.insert(c10::toString(dtype), bytes.clone().view(dtype));
  }
  tensors.insert("Bool", torch::tensor({true, false, true}));
  tensors.insert("scalar", torch::tensor(2.5));
  tensors.insert("nothing", torch::empty({2, 0, 3}));
  save_safetensors(folder_ / "w.safetensors", tensors, {{"k", "v"}});

  const SafetensorsFile file(folder_ / "w.safetensors");
  EXPECT_EQ(file.names().size(), tensors.size());
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"k", "v"}}));
  for (const auto& item : tensors) {
    const at::Tensor read = file.tensor(item.key());
    EXPECT_EQ(read.scalar_type(), item.value().scalar_type()) << item.key();
    EXPECT_EQ(read.sizes(), item.value().sizes()) << item.key();
    ASSERT_EQ(read.nbytes(), item.value().nbytes()) << item.key();
    EXPECT_EQ(bytes_of(read), bytes_of(item.value())) << item.key();
  }
}

TEST_F(SafetensorsSave, WritesTensorsThatAreNotContiguousInRowMajorOrder) {
  const at::Tensor base = torch::arange(6, torch::kFloat).view({2, 3});
  const at::Tensor conjugate = torch::view_as_complex(base.view({3, 2}).clone()).conj();
  save_safetensors(folder_ / "w.safetensors", {{"t", base.t()},
                                               {"column", base.select(1, 1)},
                                               {"expanded", base[0].expand({2, 3})},
                                               {"conjugate", conjugate}});
  const SafetensorsFile file(folder_ / "w.safetensors");
  EXPECT_TRUE(torch::equal(file.tensor("t"), base.t()));
  EXPECT_TRUE(torch::equal(file.tensor("column"), torch::tensor({1.0F, 4.0F})));
  EXPECT_TRUE(torch::equal(file.tensor("expanded"), base[0].expand({2, 3})));
  EXPECT_TRUE(torch::equal(file.tensor("conjugate"), conjugate.resolve_conj()));
}

TEST_F(SafetensorsSave, KeepsTheFirstNameOfATensorAndTheOthersAsAliases) {
  const at::Tensor shared = torch::randn({3, 2});
  save_safetensors(folder_ / "w.safetensors",
                   {{"z", shared}, {"a", shared.detach()}, {"other", torch::randn({3, 2})}});
  const SafetensorsFile file(folder_ / "w.safetensors");
  EXPECT_THAT(file.names(), ElementsAre("other", "z"));
  EXPECT_THAT(file.aliases(), ElementsAre(Pair("a", "z")));
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"a", "z"}}));
  EXPECT_TRUE(file.contains("a"));
  EXPECT_EQ(file.tensor("a").data_ptr(), file.tensor("z").data_ptr());
  EXPECT_EQ(file.info("a").name, "z");
}

TEST_F(SafetensorsSave, WritesTensorsThatShareOnlyAPartOfTheirMemoryEachInFull) {
  const at::Tensor base = torch::arange(6, torch::kFloat);
  const NamedTensors tensors{{"all", base},
                             {"head", base.narrow(0, 0, 4)},
                             {"tail", base.narrow(0, 2, 4)},
                             {"shaped", base.view({2, 3})},
                             {"bits", base.view(torch::kInt)}};
  save_safetensors(folder_ / "w.safetensors", tensors);
  const SafetensorsFile file(folder_ / "w.safetensors");
  EXPECT_TRUE(file.aliases().empty());
  for (const auto& item : tensors) {
    EXPECT_TRUE(torch::equal(file.tensor(item.key()), item.value())) << item.key();
  }
}

TEST_F(SafetensorsSave, WritesAnAliasInFullWhereItsNameIsTakenInTheMetadata) {
  const at::Tensor shared = torch::ones({2});
  save_safetensors(folder_ / "w.safetensors", {{"a", shared}, {"format", shared}, {"note", shared}},
                   {{"note", "mine"}});
  const SafetensorsFile file(folder_ / "w.safetensors");
  EXPECT_THAT(file.names(), ElementsAre("a", "format", "note"));
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"note", "mine"}}));
}

TEST_F(SafetensorsSave, RefusesTensorsThatHaveNoPlaceInAFileAndLeavesNothingBehind) {
  const auto path = folder_ / "w.safetensors";
  const auto message = [&](const at::Tensor& tensor) {
    return error_of<UsageError>([&] {
             save_safetensors(path, {{"fine", torch::ones({2})}, {"x", tensor}});
           })
        .message();
  };
  EXPECT_EQ(message({}), "tensor \"x\" is undefined");
  EXPECT_EQ(message(torch::eye(3).to_sparse()),
            "tensor \"x\" is sparse, which safetensors files cannot hold");
  EXPECT_EQ(message(torch::empty({2}, torch::kMeta)),
            "tensor \"x\" is a meta tensor: it has no values");
  EXPECT_EQ(message(torch::ones({2}, torch::kComplexDouble)),
            "tensor \"x\" has the type ComplexDouble, which safetensors files cannot hold");
  EXPECT_TRUE(entries().empty());
}

TEST_F(SafetensorsSave, ReplacesAFileInOneStepAndKeepsItIfWritingFails) {
  const auto path = folder_ / "w.safetensors";
  save_safetensors(path, {{"x", torch::zeros({2})}});
  const at::Tensor mapped = SafetensorsFile(path).tensor("x");
  save_safetensors(path, {{"x", torch::ones({2})}});
  EXPECT_TRUE(torch::equal(mapped, torch::zeros({2})));
  EXPECT_TRUE(torch::equal(SafetensorsFile(path).tensor("x"), torch::ones({2})));
  EXPECT_THAT(entries(), ElementsAre("w.safetensors"));

  struct rlimit limit {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{.rlim_cur = 1000, .rlim_max = limit.rlim_max};
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(save_safetensors(path, {{"x", torch::ones({1'000'000})}}), CheckpointError);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  signal(SIGXFSZ, old_handler);
  EXPECT_TRUE(torch::equal(SafetensorsFile(path).tensor("x"), torch::ones({2})));
  EXPECT_THAT(entries(), ElementsAre("w.safetensors"));
}

TEST_F(SafetensorsSave, TakesNamesThatAreNoNamesOfFiles) {
  const NamedTensors tensors{{"", torch::ones({1})},
                             {"new\nline", torch::ones({1})},
                             {"../up", torch::ones({1})},
                             {"\u65e5", torch::ones({1})}};
  save_safetensors(folder_ / ".hidden file\n", tensors);
  EXPECT_EQ(SafetensorsFile(folder_ / ".hidden file\n").names().size(), 4U);
  EXPECT_THAT(error_of<CheckpointError>([&] {
                save_safetensors(folder_ / "none" / "w.safetensors", tensors);
              }).what(),
              HasSubstr("none"));
}

TEST(SafetensorsStream, NamesEachTensorBeforeItsBytesAndWritesItWithoutACopy) {
  MemorySink sink;
  const NamedTensors tensors{
      {"b", torch::ones({5})}, {"a", torch::zeros({3})}, {"i", torch::ones({2}, torch::kLong)}};
  write_safetensors(sink, tensors, {{"format", "pt"}});
  ASSERT_EQ(sink.parts.size(), 3U);
  const size_t header = sink.parts[0].second;
  EXPECT_THAT(sink.parts,
              ElementsAre(Pair("i", header), Pair("a", header + 16), Pair("b", header + 28)));
  EXPECT_EQ(sink.text.size(), header + 48);
  EXPECT_EQ(safetensors_file_size(tensors, {{"format", "pt"}}), sink.text.size());
}

}  // namespace
}  // namespace accelerate

// Reading safetensors files as tensors.
#include <accelerate/safetensors.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "unit/files/safetensors_files.h"

namespace accelerate {
namespace {

using test::error_of;
using test::safetensors_file;
using testing::ElementsAre;
using testing::HasSubstr;

using SafetensorsFileTest = test::ScratchFolder;

// Mapped memory of that file in this process.
bool is_mapped(const std::filesystem::path& path) {
  std::ifstream maps("/proc/self/maps");
  const std::string text{std::istreambuf_iterator<char>(maps), {}};
  return text.find(path.string()) != std::string::npos;
}

TEST_F(SafetensorsFileTest, TellsWhatIsInTheFileWithoutLoadingIt) {
  const SafetensorsFile file(
      write("w.safetensors",
            safetensors_file(R"({"__metadata__":{"format":"pt"},)"
                             R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]},)"
                             R"("a":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]}})",
                             11)));
  EXPECT_THAT(file.names(), ElementsAre("a", "b"));
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"format", "pt"}}));
  EXPECT_TRUE(file.contains("a"));
  EXPECT_FALSE(file.contains("c"));
  const SafetensorsInfo& info = file.info("a");
  EXPECT_EQ(info.dtype, "BF16");
  EXPECT_THAT(info.shape, ElementsAre(2, 2));
  EXPECT_EQ(info.bytes, 8U);
  EXPECT_EQ(info.scalar_type, at::kBFloat16);
  const auto error = error_of<CheckpointError>([&] { file.info("c"); });
  EXPECT_EQ(error.message(), "there is no tensor \"c\" in the file");
  EXPECT_EQ(error.hint(), "it has 2 tensors: \"a\", \"b\"");
}

TEST_F(SafetensorsFileTest, GivesViewsOfTheMappingThatOutliveTheFileObject) {
  const auto path = folder_ / "w.safetensors";
  save_safetensors(path, {{"x", torch::arange(6).view({2, 3})}});
  at::Tensor first;
  at::Tensor again;
  {
    const SafetensorsFile file(path);
    first = file.tensor("x");
    again = file.tensor("x");
  }
  EXPECT_EQ(first.data_ptr(), again.data_ptr());
  EXPECT_TRUE(is_mapped(path));
  std::filesystem::remove(path);
  EXPECT_TRUE(torch::equal(first, torch::arange(6).view({2, 3})));
  first = at::Tensor();
  again = at::Tensor();
  EXPECT_FALSE(is_mapped(path));
}

TEST_F(SafetensorsFileTest, KeepsTheFileAsItIsWhenATensorIsWrittenTo) {
  const auto path = folder_ / "w.safetensors";
  save_safetensors(path, {{"x", torch::ones({4})}});
  SafetensorsFile(path).tensor("x").fill_(7);
  EXPECT_TRUE(torch::equal(SafetensorsFile(path).tensor("x"), torch::ones({4})));
}

TEST_F(SafetensorsFileTest, CopiesTensorsThatAreNotAligned) {
  std::string bytes = safetensors_file(R"({"u":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                       R"("f":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})");
  const std::array<float, 2> values{1.5F, -2.0F};
  bytes += '\x09';
  bytes.append(reinterpret_cast<const char*>(values.data()), sizeof(values));
  const SafetensorsFile file(write("w.safetensors", bytes));
  const at::Tensor tensor = file.tensor("f");
  EXPECT_TRUE(torch::equal(tensor, torch::tensor({1.5F, -2.0F})));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % alignof(float), 0U);
  EXPECT_EQ(file.tensor("u").item<uint8_t>(), 9);
  EXPECT_TRUE(torch::equal(file.slice("f", 0, 1, 2), torch::tensor({-2.0F})));
}

TEST_F(SafetensorsFileTest, GivesSlicesAlongEachDimensionWithoutACopy) {
  const auto path = folder_ / "w.safetensors";
  const at::Tensor whole = torch::arange(24).view({2, 3, 4});
  save_safetensors(path, {{"x", whole}});
  const SafetensorsFile file(path);
  EXPECT_TRUE(torch::equal(file.slice("x", 0, 1, 2), whole.narrow(0, 1, 1)));
  EXPECT_TRUE(torch::equal(file.slice("x", 1, 0, 2), whole.narrow(1, 0, 2)));
  EXPECT_TRUE(torch::equal(file.slice("x", 2, 3, 3), whole.narrow(2, 3, 0)));
  EXPECT_EQ(file.slice("x", 0, 1, 2).data_ptr(), file.tensor("x")[1].data_ptr());
  EXPECT_EQ(error_of<UsageError>([&] { file.slice("x", 3, 0, 1); }).message(),
            "tensor \"x\" has 3 dimensions, there is no dimension 3");
  EXPECT_EQ(error_of<UsageError>([&] { file.slice("x", 1, 2, 4); }).message(),
            "elements 2 to 4 of tensor \"x\" were asked for, dimension 1 has 3");
  EXPECT_THROW(file.slice("x", 1, 2, 1), UsageError);
  EXPECT_THROW(file.slice("x", 1, -1, 1), UsageError);
}

TEST_F(SafetensorsFileTest, ListsTypesThatTorchLacksAndRefusesToLoadThem) {
  const SafetensorsFile file(
      write("w.safetensors",
            safetensors_file(R"({"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})", 3)));
  EXPECT_EQ(file.info("a").dtype, "F6_E2M3");
  EXPECT_FALSE(file.info("a").scalar_type.has_value());
  EXPECT_EQ(error_of<CheckpointError>([&] { file.tensor("a"); }).message(),
            "tensor \"a\" has the type F6_E2M3, which torch does not have");
}

TEST_F(SafetensorsFileTest, RefusesBoolsThatAreNeitherZeroNorOne) {
  const SafetensorsFile file(
      write("w.safetensors",
            safetensors_file(R"({"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", 3)));
  EXPECT_EQ(error_of<CheckpointError>([&] { file.tensor("a"); }).message(),
            "tensor \"a\" of bools holds the byte 2 at element 2");
}

TEST_F(SafetensorsFileTest, RefusesAFileThatIsMissingEmptyOrAFolder) {
  const auto message = [&](const char* name) {
    return error_of<CheckpointError>([&] { SafetensorsFile(folder_ / name); }).message();
  };
  EXPECT_EQ(message("none.safetensors"),
            "the safetensors file cannot be opened: No such file or directory");
  EXPECT_EQ(message(""), "the safetensors file cannot be opened: Is a directory");
  write("empty.safetensors", "");
  EXPECT_EQ(message("empty.safetensors"), "the safetensors file is empty");
}

TEST_F(SafetensorsFileTest, DoesNotTouchTheDataOfAFileThatIsLargerThanMemory) {
  // 4 TB that take no place on the disk.
  constexpr uint64_t kBytes = uint64_t{1} << 42;
  const std::string header =
      safetensors_file(R"({"a":{"dtype":"U8","shape":[)" + std::to_string(kBytes) +
                       R"(],"data_offsets":[0,)" + std::to_string(kBytes) + "]}}");
  const auto path = write("large.safetensors", header);
  std::error_code error;
  std::filesystem::resize_file(path, header.size() + kBytes, error);
  if (error) GTEST_SKIP() << "the file system has no files of 4 TB: " << error.message();
  const SafetensorsFile file(path);
  EXPECT_EQ(file.info("a").bytes, kBytes);
  EXPECT_EQ(file.slice("a", 0, int64_t{1} << 41, (int64_t{1} << 41) + 2).sum().item<int64_t>(), 0);
}

}  // namespace
}  // namespace accelerate

#include "accelerate/detail/packed_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "accelerate/errors.h"

namespace accelerate::detail {
namespace {

using testing::ElementsAre;

enum class PackedSplit { kTrain, kTest };

struct Everything {
  at::Tensor tensor{};
  at::Tensor undefined{};
  std::map<std::string, std::vector<at::Tensor>> lists{};
  std::unordered_map<std::string, std::optional<at::Tensor>> maybe{};
  std::vector<std::string> text{};
  std::vector<double> weights{};
  std::vector<bool> flags{};
  std::tuple<int, float, bool, PackedSplit, std::string> constants{};
  ACCELERATE_FIELDS(tensor, undefined, lists, maybe, text, weights, flags, constants)
};

Everything everything() {
  return {.tensor = at::arange(6).view({2, 3}),
          .lists = {{"a", {at::ones({5}, at::kByte), at::zeros({0, 4})}}, {"b", {}}},
          .maybe = {{"set", at::full({}, 2.5)}, {"unset", std::nullopt}},
          .text = {"one", std::string("t\0o", 3)},
          .weights = {0.5, -1},
          .flags = {true, false, true},
          .constants = {-7, 1.5F, true, PackedSplit::kTest, "constant"}};
}

template <class V>
V there_and_back(const V& value) {
  const PackedValue packed = pack(value);
  return unpack<V>(packed.header, packed.bytes);
}

template <class V>
std::string packing_refusal(std::string_view header, const at::Tensor& bytes) {
  try {
    (void)unpack<V>(header, bytes);
  } catch (const DataError& error) {
    return error.message();
  }
  return "no DataError";
}

TEST(PackedValue, ComesBackAsItWas) {
  const Everything before = everything();
  const Everything after = there_and_back(before);
  EXPECT_TRUE(at::equal(after.tensor, before.tensor));
  EXPECT_EQ(after.tensor.scalar_type(), at::kLong);
  EXPECT_FALSE(after.undefined.defined());
  ASSERT_EQ(after.lists.size(), 2);
  ASSERT_EQ(after.lists.at("a").size(), 2);
  EXPECT_TRUE(at::equal(after.lists.at("a")[0], before.lists.at("a")[0]));
  EXPECT_EQ(after.lists.at("a")[1].sizes(), at::IntArrayRef({0, 4}));
  EXPECT_TRUE(after.lists.at("b").empty());
  EXPECT_EQ(after.maybe.at("set")->item<float>(), 2.5F);
  EXPECT_FALSE(after.maybe.at("unset"));
  EXPECT_EQ(after.text, before.text);
  EXPECT_EQ(after.weights, before.weights);
  EXPECT_EQ(after.flags, before.flags);
  EXPECT_EQ(after.constants, before.constants);
}

TEST(PackedValue, ABareTensorComesBack) {
  const at::Tensor tensor = at::rand({3, 4}, at::kDouble);
  EXPECT_TRUE(at::equal(there_and_back(tensor), tensor));
  EXPECT_FALSE(there_and_back(at::Tensor()).defined());
}

TEST(PackedValue, TensorsBeginAtMultiplesOf64AndShareTheBytes) {
  const std::vector<at::Tensor> tensors{at::ones({3}, at::kByte), at::ones({65}, at::kByte),
                                        at::ones({2}, at::kDouble)};
  const PackedValue packed = pack(tensors);
  EXPECT_EQ(packed.bytes.numel(), 64 + 128 + 64);
  const auto unpacked = unpack<std::vector<at::Tensor>>(packed.header, packed.bytes);
  const auto* begin = static_cast<const char*>(packed.bytes.data_ptr());
  std::vector<int64_t> offsets;
  for (const at::Tensor& tensor : unpacked) {
    offsets.push_back(static_cast<const char*>(tensor.data_ptr()) - begin);
    EXPECT_TRUE(tensor.is_contiguous());
  }
  EXPECT_THAT(offsets, ElementsAre(0, 64, 192));
}

TEST(PackedValue, TensorsKeepTheBytesAlive) {
  PackedValue packed = pack(at::arange(1000));
  const at::Tensor tensor = unpack<at::Tensor>(packed.header, std::move(packed.bytes));
  packed = {};
  EXPECT_TRUE(at::equal(tensor, at::arange(1000)));
}

TEST(PackedValue, TensorsThatAreNoPlainBytesArriveAsTheirValues) {
  const at::Tensor complex = at::complex(at::ones({2}), at::ones({2}));
  const std::vector<at::Tensor> tensors{at::arange(6).view({2, 3}).t(), complex.conj(),
                                        at::_neg_view(at::ones({2})), at::ones({2}).expand({3, 2}),
                                        torch::ones({2}, at::requires_grad())};
  const auto unpacked = there_and_back(tensors);
  for (size_t i = 0; i < tensors.size(); ++i) EXPECT_TRUE(at::equal(unpacked[i], tensors[i])) << i;
  EXPECT_FALSE(unpacked[4].requires_grad());
}

TEST(PackedValue, BytesMayBePartOfALargerBuffer) {
  const PackedValue packed = pack(everything());
  for (const int64_t offset : {0, 64, 3}) {
    const at::Tensor arena = at::zeros({packed.bytes.numel() + 200}, at::kByte);
    const at::Tensor part = arena.narrow(0, offset, packed.bytes.numel() + 100);
    part.narrow(0, 0, packed.bytes.numel()).copy_(packed.bytes);
    const auto unpacked = unpack<Everything>(packed.header, part);
    EXPECT_TRUE(at::equal(unpacked.tensor, everything().tensor)) << offset;
    EXPECT_EQ(unpacked.tensor.is_alias_of(arena), offset != 3) << "only aligned bytes can be used";
  }
}

TEST(PackedValue, ASparseTensorIsRefused) {
  try {
    (void)pack(Sample{.data = at::zeros({2}), .target = at::ones({2, 2}).to_sparse()});
    ADD_FAILURE() << "a sparse tensor was packed";
  } catch (const DataError& error) {
    EXPECT_EQ(error.message(),
              "a tensor of layout Sparse and dtype Float on cpu cannot be sent to another process");
    EXPECT_EQ(error.where(), "target");
  }
}

TEST(PackedValue, AnotherTypeIsRefused) {
  const PackedValue packed = pack(std::pair(at::zeros({2}), 3));
  EXPECT_THAT((packing_refusal<std::pair<at::Tensor, float>>(packed.header, packed.bytes)),
              testing::StartsWith("a packed value cannot be read: it has another type than "));
}

TEST(PackedValue, EveryHeaderThatEndsTooEarlyIsRefused) {
  const PackedValue packed = pack(everything());
  for (size_t size = 0; size < packed.header.size(); ++size) {
    EXPECT_THAT(packing_refusal<Everything>(packed.header.substr(0, size), packed.bytes),
                testing::StartsWith("a packed value cannot be read: it has "))
        << size;
  }
  EXPECT_EQ(packing_refusal<Everything>(packed.header + "x", packed.bytes),
            "a packed value cannot be read: it has a header that goes on after its end");
}

TEST(PackedValue, BytesThatDoNotFitAreRefused) {
  const PackedValue packed = pack(at::arange(100));
  EXPECT_EQ(packing_refusal<at::Tensor>(packed.header, packed.bytes.narrow(0, 0, 800)),
            "a packed value cannot be read: it has 800 bytes of tensor data, its header says 832");
  const std::string wrong =
      "a packed value cannot be read: it has tensor data that is not a contiguous tensor of bytes";
  EXPECT_EQ(packing_refusal<at::Tensor>(packed.header, at::Tensor()), wrong);
  EXPECT_EQ(packing_refusal<at::Tensor>(packed.header, at::zeros({832})), wrong);
}

// Reads damaged headers: each must be refused or give some value, within the memory that is there.
TEST(PackedValue, DamagedHeadersAreRefusedOrReadWithinBounds) {
  const PackedValue packed = pack(everything());
  std::mt19937 random(7);
  size_t refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string header = packed.header;
    for (int byte = 0; byte < 1 + round % 3; ++byte) {
      header[random() % header.size()] = static_cast<char>(random());
    }
    try {
      const auto value = unpack<Everything>(header, packed.bytes);
      for_each_tensor(value, [](const at::Tensor& tensor) {
        if (tensor.defined()) (void)tensor.sum();
      });
    } catch (const DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(PackedValue, ATensorOutsideOfItsDataIsRefused) {
  const PackedValue packed = pack(at::arange(4));
  // magic, type and length, kind, dtype, dimensions; then the only size and the offset
  constexpr size_t kSize = 24 + 3;
  for (const int64_t size : {int64_t{9}, int64_t{-1}, int64_t{1} << 61}) {
    std::string header = packed.header;
    std::memcpy(header.data() + kSize, &size, sizeof(size));
    EXPECT_EQ(packing_refusal<at::Tensor>(header, packed.bytes),
              "a packed value cannot be read: it has a tensor that lies outside of its data")
        << size;
  }
  for (const int64_t offset : {int64_t{64}, int64_t{-64}, int64_t{1}}) {
    std::string header = packed.header;
    std::memcpy(header.data() + kSize + 8, &offset, sizeof(offset));
    EXPECT_EQ(packing_refusal<at::Tensor>(header, packed.bytes),
              "a packed value cannot be read: it has a tensor that lies outside of its data")
        << offset;
  }
}

}  // namespace
}  // namespace accelerate::detail

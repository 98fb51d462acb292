#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <atomic>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

#include "accelerate/token_dataset.h"
#include "unit/data/dataset_files.h"

namespace accelerate {
namespace {

using testing::HasSubstr;

std::string header(int32_t magic, int32_t version, int32_t tokens) {
  std::vector<int32_t> words(256, 0);
  words[0] = magic;
  words[1] = version;
  words[2] = tokens;
  return bytes_of(words);
}

// `count` tokens from `first` on.
template <class T>
std::string tokens_from(T first, size_t count) {
  std::vector<T> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return bytes_of(tokens);
}

std::string gpt2_file(uint16_t first, size_t count) {
  return header(20240520, 1, static_cast<int32_t>(count)) + tokens_from<uint16_t>(first, count);
}

at::Tensor range(int64_t first, int64_t count) { return at::arange(first, first + count); }

class TokenFiles : public DatasetFiles {
 protected:
  std::string refusal(const std::string& bytes, const TokenOptions& options) {
    const auto path = write("bad.bin", bytes);
    const DataError error = error_of<DataError>([&] { TokenDataset(path, options); });
    EXPECT_THAT(error.where(), HasSubstr(path.string()));
    EXPECT_NE(error.hint(), "");
    return error.message();
  }
};

TEST_F(TokenFiles, TheTargetIsTheBlockOneTokenLater) {
  const TokenDataset dataset(write("a.bin", gpt2_file(100, 13)), {.block = 4});
  EXPECT_EQ(dataset.size(), 3U);  // 13 tokens: three blocks and the token after the last
  EXPECT_EQ(dataset.tokens(), 13U);
  const Sample last = dataset.get(2);
  EXPECT_TRUE(at::equal(last.data, range(108, 4)));
  EXPECT_TRUE(at::equal(last.target, range(109, 4)));
}

TEST_F(TokenFiles, ABlockWithoutItsLastTargetIsNotASample) {
  EXPECT_EQ(TokenDataset(write("a.bin", gpt2_file(0, 12)), {.block = 4}).size(), 2U);
  EXPECT_EQ(UnlabelledTokenDataset(write("a.bin", gpt2_file(0, 12)), {.block = 4}).size(), 3U);
}

TEST_F(TokenFiles, AStrideMakesBlocksOverlapOrLeaveGaps) {
  const auto path = write("a.bin", gpt2_file(0, 11));
  const TokenDataset overlapping(path, {.block = 4, .stride = 2});
  EXPECT_EQ(overlapping.size(), 4U);
  EXPECT_TRUE(at::equal(overlapping.get(3).data, range(6, 4)));
  EXPECT_TRUE(at::equal(overlapping.get(3).target, range(7, 4)));
  const TokenDataset sparse(path, {.block = 2, .stride = 5});
  EXPECT_EQ(sparse.size(), 2U);
  EXPECT_TRUE(at::equal(sparse.get(1).data, range(5, 2)));
}

TEST_F(TokenFiles, BatchesAreStackedInTheOrderOfTheIndices) {
  const TokenDataset dataset(write("a.bin", gpt2_file(0, 101)), {.block = 10});
  const std::vector<size_t> indices{9, 0, 4};
  const Sample batch = dataset.get_batch(indices);
  EXPECT_TRUE(at::equal(batch.data, at::stack({range(90, 10), range(0, 10), range(40, 10)})));
  EXPECT_TRUE(at::equal(batch.target, batch.data + 1));
  EXPECT_TRUE(batch.target.is_contiguous());
  EXPECT_EQ(dataset.get_batch({}).data.sizes(), (at::IntArrayRef{0, 10}));
}

TEST_F(TokenFiles, TheWiderFormatIsRecognisedByItself) {
  const TokenDataset dataset(
      write("llama.bin", header(20240801, 7, 6) + tokens_from<uint32_t>(128'000, 6)), {.block = 5});
  EXPECT_TRUE(at::equal(dataset.get(0).data, range(128'000, 5)));
  EXPECT_TRUE(at::equal(dataset.get(0).target, range(128'001, 5)));
}

TEST_F(TokenFiles, TokensAreUnsigned) {
  const TokenDataset narrow(write("a.bin", bytes_of<uint16_t>({65535, 40000})),
                            {.block = 1, .stored = StoredToken::kUint16});
  EXPECT_EQ(narrow.get(0).data.item<int64_t>(), 65535);
  const TokenDataset wide(write("b.bin", bytes_of<uint32_t>({4294967295U, 1})),
                          {.block = 1, .stored = StoredToken::kUint32});
  EXPECT_EQ(wide.get(0).data.item<int64_t>(), 4294967295);
}

TEST_F(TokenFiles, EveryOutputTypeHoldsTheSameTokens) {
  const auto narrow = write("a.bin", gpt2_file(60'000, 9));
  const auto wide = write("b.bin", header(20240801, 7, 9) + tokens_from<uint32_t>(60'000, 9));
  const auto tokens_of = [](const std::filesystem::path& path, TokenDtype dtype) {
    return UnlabelledTokenDataset(path, {.block = 9, .dtype = dtype}).get(0);
  };
  EXPECT_EQ(tokens_of(narrow, TokenDtype::kAsStored).scalar_type(), at::kUInt16);
  EXPECT_EQ(tokens_of(wide, TokenDtype::kAsStored).scalar_type(), at::kUInt32);
  EXPECT_EQ(tokens_of(narrow, TokenDtype::kInt32).scalar_type(), at::kInt);
  for (const auto& path : {narrow, wide}) {
    for (const auto dtype : {TokenDtype::kAsStored, TokenDtype::kInt32, TokenDtype::kInt64}) {
      EXPECT_TRUE(at::equal(tokens_of(path, dtype).to(at::kLong), range(60'000, 9)));
    }
  }
}

TEST_F(TokenFiles, AFileWithoutHeaderMayHaveBytesBeforeItsTokens) {
  const UnlabelledTokenDataset dataset(write("a.bin", "12345678" + tokens_from<uint16_t>(5, 4)),
                                       {.block = 2, .stored = StoredToken::kUint16, .offset = 8});
  EXPECT_EQ(dataset.size(), 2U);
  EXPECT_TRUE(at::equal(dataset.get(1), range(7, 2)));
  const std::vector<size_t> indices{1, 0};
  EXPECT_TRUE(at::equal(dataset.get_batch(indices).data, at::stack({range(7, 2), range(5, 2)})));
}

TEST_F(TokenFiles, SeveralFilesFollowOneAnotherAndNoSampleCrosses) {
  const TokenDataset dataset({write("a.bin", gpt2_file(0, 8)), write("short.bin", gpt2_file(50, 2)),
                              write("b.bin", gpt2_file(100, 10))},
                             {.block = 3});
  EXPECT_EQ(dataset.tokens(), 20U);
  ASSERT_EQ(dataset.size(), 5U);  // two, none, three
  const std::vector<size_t> indices{0, 1, 2, 3, 4};
  EXPECT_TRUE(at::equal(dataset.get_batch(indices).data.select(1, 0),
                        at::tensor({0, 3, 100, 103, 106}, at::kLong)));
  EXPECT_TRUE(at::equal(dataset.get(4).target, range(107, 3)));
}

TEST_F(TokenFiles, RefusesFilesOfDifferentTokenSize) {
  const auto narrow = write("a.bin", gpt2_file(0, 8));
  const auto wide = write("b.bin", header(20240801, 7, 9) + tokens_from<uint32_t>(0, 9));
  const DataError error = error_of<DataError>([&] { TokenDataset({narrow, wide}, {.block = 2}); });
  EXPECT_EQ(error.where(), wide.string());
  EXPECT_THAT(error.message(), HasSubstr("a.bin has 2 bytes, this one 4"));
}

TEST_F(TokenFiles, RefusesDamagedHeaders) {
  const TokenOptions options{.block = 2};
  EXPECT_EQ(refusal(std::string(1023, 'x'), options),
            "the token file ends inside its header of 1024 bytes");
  EXPECT_EQ(refusal(std::string(2000, 'x'), options),
            "not a token file: it does not begin with a known magic number");
  EXPECT_EQ(refusal(header(20240520, 2, 4) + tokens_from<uint16_t>(0, 4), options),
            "the token file is of version 2, the known one is 1");
  EXPECT_EQ(refusal(header(20240801, 1, 4) + tokens_from<uint32_t>(0, 4), options),
            "the token file is of version 1, the known one is 7");
  EXPECT_EQ(refusal(header(20240520, 1, 5) + tokens_from<uint16_t>(0, 4), options),
            "the header of the token file promises 5 tokens in 10 bytes, the file holds 8");
  EXPECT_EQ(refusal(header(20240520, 1, 3) + tokens_from<uint16_t>(0, 4), options),
            "the header of the token file promises 3 tokens in 6 bytes, the file holds 8");
  EXPECT_EQ(refusal(header(20240520, 1, -1), options),
            "the header of the token file promises 4294967295 tokens in 8589934590 bytes, the file "
            "holds 0");
  EXPECT_EQ(refusal("", options), "the token file is empty");
}

TEST_F(TokenFiles, RefusesFilesWithoutHeaderThatEndInsideAToken) {
  EXPECT_EQ(refusal("12345", {.block = 1, .stored = StoredToken::kUint16}),
            "the token file ends inside a token: it holds 5 bytes of tokens of 2");
  EXPECT_EQ(refusal("123456", {.block = 1, .stored = StoredToken::kUint32}),
            "the token file ends inside a token: it holds 6 bytes of tokens of 4");
  EXPECT_EQ(refusal("1234", {.block = 1, .stored = StoredToken::kUint16, .offset = 4}),
            "the token file ends before its first token, which should be at byte 4");
}

TEST_F(TokenFiles, RefusesFilesTooShortForASample) {
  EXPECT_EQ(refusal(gpt2_file(0, 4), {.block = 4}),
            "no token file is long enough for one sample of 5 tokens; all together hold 4");
}

TEST_F(TokenFiles, RefusesOptionsThatMakeNoSense) {
  const auto path = write("a.bin", gpt2_file(0, 9));
  const auto message = [&](const TokenOptions& options) {
    return error_of<UsageError>([&] { TokenDataset(path, options); }).message();
  };
  EXPECT_EQ(message({.block = 0}), "TokenOptions: a block needs at least one token, got 0");
  EXPECT_EQ(message({.stride = -1}), "TokenOptions: the stride is negative: -1");
  EXPECT_EQ(message({.offset = 2}), "TokenOptions: offset is for files without a header");
  EXPECT_EQ(message({.block = 1, .stored = StoredToken::kUint32, .offset = 6}),
            "TokenOptions: an offset of 6 bytes is not a multiple of the 4 bytes of a token");
  EXPECT_EQ(
      error_of<UsageError>([] { TokenDataset(std::vector<std::filesystem::path>{}); }).message(),
      "a token dataset needs at least one file");
}

TEST_F(TokenFiles, RefusesAnIndexThatIsNoSample) {
  const TokenDataset dataset(write("a.bin", gpt2_file(0, 9)), {.block = 4});
  EXPECT_EQ(error_of<UsageError>([&] { dataset.get(2); }).message(),
            "sample 2 was asked of a dataset of 2");
}

TEST_F(TokenFiles, ManyThreadsReadAtOnce) {
  const TokenDataset dataset(write("a.bin", gpt2_file(0, 6401)), {.block = 64});
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (size_t reader = 0; reader < 8; ++reader) {
    readers.emplace_back([&, reader] {
      for (size_t i = 0; i < 200; ++i) {
        const size_t index = (reader * 31 + i) % dataset.size();
        const std::vector<size_t> indices{index};
        const Sample batch = dataset.get_batch(indices);
        if (batch.data.data_ptr<int64_t>()[63] != static_cast<int64_t>(index * 64 + 63)) ++wrong;
      }
    });
  }
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(TokenFiles, AFileOfFourGigabytesCostsNoMemory) {
  const auto path = write("sparse.bin", "");
  std::filesystem::resize_file(path, uint64_t{4} << 30);
  const size_t before = resident_bytes();
  const TokenDataset dataset(path, {.block = 1024, .stored = StoredToken::kUint16});
  EXPECT_EQ(dataset.size(), (uint64_t{2} << 30) / 1024 - 1);
  for (size_t i = 0; i < 64; ++i) {
    const std::vector<size_t> indices{i * (dataset.size() / 64), dataset.size() - 1};
    EXPECT_EQ(dataset.get_batch(indices).data.sum().item<int64_t>(), 0);
  }
  EXPECT_LT(resident_bytes(), before + (size_t{64} << 20));
}

}  // namespace
}  // namespace accelerate

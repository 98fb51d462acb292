#include <ATen/ATen.h>
#include <accelerate/accelerate.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>
#include <stdexcept>

#include "data_parts.h"
#include "turns.h"

namespace bench {
namespace {

constexpr size_t kTokens = 100'000'000;
constexpr size_t kBlock = 1024;
constexpr size_t kBatchSize = 16;
constexpr uint64_t kSeed = 1;

// Random tokens of 16 bits, mapped as a program without the library would.
class TokenFile {
 public:
  explicit TokenFile(const std::filesystem::path& folder) : path_(folder / "bench_tokens.bin") {
    std::ofstream out(path_, std::ios::binary);
    std::mt19937_64 random(kSeed);
    std::vector<uint64_t> words(kTokens * sizeof(uint16_t) / sizeof(uint64_t));
    for (uint64_t& word : words) word = random();
    out.write(reinterpret_cast<const char*>(words.data()), kTokens * sizeof(uint16_t));
    out.close();
    if (!out) throw std::runtime_error("cannot write " + path_.string());
    const int descriptor = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    void* address = mmap(nullptr, kTokens * sizeof(uint16_t), PROT_READ, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (address == MAP_FAILED) throw std::runtime_error("cannot map " + path_.string());
    tokens_ = static_cast<const uint16_t*>(address);
  }
  ~TokenFile() {
    munmap(const_cast<uint16_t*>(tokens_), kTokens * sizeof(uint16_t));
    std::filesystem::remove(path_);
  }
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const uint16_t* block(int64_t index) const {
    return tokens_ + static_cast<size_t>(index) * kBlock;
  }

 private:
  std::filesystem::path path_;
  const uint16_t* tokens_ = nullptr;
};

// The order of the loader's next pass; the loops by hand get it for nothing.
std::vector<int64_t> order_of(int64_t blocks) {
  std::vector<int64_t> order(static_cast<size_t>(blocks));
  accelerate::permutation_sampler()->order(blocks, kSeed, 0)->read(0, order);
  return order;
}

void copy_block(const uint16_t* block, uint16_t* out) {
  std::memcpy(out, block, kBlock * sizeof(uint16_t));
}
void copy_block(const uint16_t* __restrict block, int64_t* __restrict out) {
  for (size_t i = 0; i < kBlock; ++i) out[i] = block[i];
}

// All batches of a pass, one after the other into the same memory.
template <class Token>
int64_t copy_by_hand(const TokenFile& file, const std::vector<int64_t>& order,
                     std::vector<Token>& batch) {
  batch.resize(kBatchSize * kBlock);
  for (size_t first = 0; first < order.size(); first += kBatchSize) {
    const size_t count = std::min(kBatchSize, order.size() - first);
    for (size_t row = 0; row < count; ++row) {
      copy_block(file.block(order[first + row]), batch.data() + row * kBlock);
    }
    asm volatile("" : : "r"(batch.data()) : "memory");  // somebody could look at the batch
  }
  return static_cast<int64_t>((order.size() + kBatchSize - 1) / kBatchSize);
}

// The same into tensors that are made for each batch, as a loader's must be.
template <class Token>
int64_t copy_into_tensors(const TokenFile& file, const std::vector<int64_t>& order,
                          at::ScalarType type) {
  int64_t batches = 0;
  for (size_t first = 0; first < order.size(); first += kBatchSize, ++batches) {
    const size_t count = std::min(kBatchSize, order.size() - first);
    const at::Tensor batch = at::empty({static_cast<int64_t>(count), kBlock}, type);
    for (size_t row = 0; row < count; ++row) {
      copy_block(file.block(order[first + row]), batch.data_ptr<Token>() + row * kBlock);
    }
  }
  return batches;
}

template <class Token, class Loader>
void require_same_blocks(const Loader& loader, const TokenFile& file,
                         const std::vector<int64_t>& order) {
  size_t place = 0;
  std::vector<Token> expected(kBlock);
  for (auto& batch : loader) {
    for (int64_t row = 0; row < batch.data.size(0); ++row, ++place) {
      copy_block(file.block(order.at(place)), expected.data());
      if (std::memcmp(batch.data[row].data_ptr(), expected.data(), kBlock * sizeof(Token)) != 0) {
        throw std::runtime_error("block " + std::to_string(place) + " of the loader is wrong");
      }
    }
  }
  if (place != order.size()) throw std::runtime_error("the loader left blocks out");
}

}  // namespace

nlohmann::json measure_tokens(const std::filesystem::path& folder, int repetitions) {
  const TokenFile file(folder);
  accelerate::Accelerator accelerator({.cpu = true});
  const auto order = order_of(kTokens / kBlock);
  std::vector<uint16_t> stored;
  std::vector<int64_t> widened;
  std::vector<Contender> contenders{
      timed("by hand, as stored", [&] { return copy_by_hand(file, order, stored); }),
      timed("by hand, int64", [&] { return copy_by_hand(file, order, widened); }),
      timed("by hand, as stored, new tensors",
            [&] { return copy_into_tensors<uint16_t>(file, order, at::kUInt16); }),
      timed("by hand, int64, new tensors",
            [&] { return copy_into_tensors<int64_t>(file, order, at::kLong); })};
  const auto add = [&](accelerate::TokenDtype dtype, const std::string& name) {
    const accelerate::UnlabelledTokenDataset dataset(
        file.path(), {.block = kBlock, .dtype = dtype, .stored = accelerate::StoredToken::kUint16});
    for (int workers = 0; workers <= 2; ++workers) {
      auto loader = accelerator.prepare(
          accelerate::data_loader(dataset, {.batch_size = kBatchSize,
                                            .num_workers = workers,
                                            .seed = kSeed,
                                            .sampler = accelerate::permutation_sampler()}));
      if (dtype == accelerate::TokenDtype::kInt64) {
        require_same_blocks<int64_t>(loader, file, order);
      } else {
        require_same_blocks<uint16_t>(loader, file, order);
      }
      contenders.push_back(timed(name + ", " + std::to_string(workers) + " workers", [loader] {
        int64_t batches = 0;
        for (auto& batch : loader) batches += batch.data.defined() ? 1 : 0;
        return batches;
      }));
    }
  };
  add(accelerate::TokenDtype::kAsStored, "loader, as stored");
  add(accelerate::TokenDtype::kInt64, "loader, int64");

  const Turns turns(contenders, repetitions);
  nlohmann::json rows = turns.report();
  for (nlohmann::json& row : rows) {
    const std::string name = row["name"];
    const bool wide = name.find("int64") != std::string::npos;
    row["speed_of_hand"] = turns.speed(name, wide ? "by hand, int64" : "by hand, as stored");
    row["speed_of_memcpy"] = turns.speed(name, "by hand, as stored");
  }
  return {{"name", "batches of 16 blocks of 1,024 tokens from a mapped file of 200 MB"},
          {"rows", rows}};
}

}  // namespace bench

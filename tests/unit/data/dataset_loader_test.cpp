// Every dataset and combinator behind a loader with workers.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/data.h>

#include <string>
#include <vector>

#include "accelerate/csv.h"
#include "accelerate/data_loader.h"
#include "accelerate/dataset.h"
#include "accelerate/dataset_ops.h"
#include "accelerate/json_lines.h"
#include "accelerate/token_dataset.h"
#include "unit/data/dataset_files.h"

namespace accelerate {
namespace {

using testing::ElementsAre;

class LoadedDatasets : public DatasetFiles {};

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kLong).contiguous();
  return {flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel()};
}

// `data` of every batch, one after the other.
template <class Dataset>
std::vector<int64_t> loaded(const Dataset& dataset,
                            const LoaderOptions& options = {.batch_size = 2, .num_workers = 2}) {
  std::vector<at::Tensor> batches;
  for (auto& batch : data_loader(dataset, options)) batches.push_back(batch.data);
  return numbers(at::cat(batches));
}

TEST_F(LoadedDatasets, TuplesOfTensorsComeApart) {
  std::vector<std::vector<int64_t>> seen;
  for (auto& batch :
       data_loader(tensor_dataset(at::arange(3), at::arange(3) * 10), {.batch_size = 2})) {
    auto& [first, second] = batch;
    seen.push_back(numbers(first));
    seen.push_back(numbers(second));
  }
  EXPECT_THAT(seen,
              ElementsAre(ElementsAre(0, 1), ElementsAre(0, 10), ElementsAre(2), ElementsAre(20)));
}

TEST_F(LoadedDatasets, TokensComeWithTheirTargets) {
  std::vector<uint16_t> tokens(9);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(i);
  const TokenDataset dataset(write("a.bin", bytes_of(tokens)),
                             {.block = 4, .stored = StoredToken::kUint16});
  for (auto& batch : data_loader(dataset, {.batch_size = 2, .num_workers = 1})) {
    EXPECT_EQ(batch.data.sizes(), (at::IntArrayRef{2, 4}));
    EXPECT_TRUE(at::equal(batch.target, batch.data + 1));
  }
}

TEST_F(LoadedDatasets, TablesAndLinesAreRead) {
  EXPECT_THAT(loaded(CsvDataset(write("a.csv", "x,y\n1,2\n3,4\n5,6\n"), {.target = {"y"}})),
              ElementsAre(1, 3, 5));
  const JsonLinesDataset lines(write("a.txt", "7\n8\n9\n"), [](std::string_view line) {
    return at::scalar_tensor(std::stoi(std::string(line)), at::kLong);
  });
  EXPECT_THAT(loaded(lines), ElementsAre(7, 8, 9));
}

TEST_F(LoadedDatasets, CombinatorsKeepTheOrder) {
  const UnlabelledTensorDataset low(at::arange(3));
  const UnlabelledTensorDataset high(at::arange(10, 13));
  EXPECT_THAT(loaded(concat(low, high)), ElementsAre(0, 1, 2, 10, 11, 12));
  EXPECT_THAT(loaded(subset(concat(low, high), {5, 0, 3})), ElementsAre(12, 0, 10));
  EXPECT_THAT(loaded(filter(high, [](const at::Tensor& t) { return t.item<int64_t>() != 11; })),
              ElementsAre(10, 12));
  EXPECT_THAT(loaded(accelerate::map(high, [](const at::Tensor& t) { return t * 2; })),
              ElementsAre(20, 22, 24));
  EXPECT_THAT(loaded(map_batches(
                  high, [](UnlabelledBatch batch) { return UnlabelledBatch{batch.data * 3}; })),
              ElementsAre(30, 33, 36));
}

TEST_F(LoadedDatasets, DrawingsDependOnSeedEpochAndIndexAlone) {
  const auto drawn = accelerate::map(
      concat(UnlabelledTensorDataset(at::arange(8)), UnlabelledTensorDataset(at::arange(8))),
      [](const at::Tensor& sample, at::Generator& generator) {
        return sample + 100 * at::randint(1, 1000, {}, generator, at::kLong);
      });
  const auto with = [&](int64_t batch_size, int workers, uint64_t seed) {
    return loaded(drawn, {.batch_size = batch_size, .num_workers = workers, .seed = seed});
  };
  const std::vector<int64_t> alone = with(2, 0, 1);
  EXPECT_EQ(alone, with(5, 3, 1));
  EXPECT_NE(alone, with(2, 0, 2));
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(alone[i] % 100, static_cast<int64_t>(i % 8));
}

TEST_F(LoadedDatasets, TorchDatasetsGoThroughCombinators) {
  struct Numbers : torch::data::datasets::Dataset<Numbers> {
    torch::data::Example<> get(size_t index) override {
      const auto value = at::scalar_tensor(static_cast<int64_t>(index), at::kLong);
      return {value, value};
    }
    std::optional<size_t> size() const override { return 4; }
  };
  EXPECT_THAT(loaded(subset(Numbers(), {3, 1})), ElementsAre(3, 1));
  EXPECT_THAT(loaded(concat(Numbers(), Numbers())), ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
  auto stacked = Numbers().map(torch::data::transforms::Stack<>());
  EXPECT_THAT(loaded(subset(stacked, {2, 0})), ElementsAre(2, 0));
}

}  // namespace
}  // namespace accelerate

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <tuple>
#include <vector>

#include "accelerate/dataset.h"
#include "unit/data/dataset_files.h"

namespace accelerate {
namespace {

TEST(TensorDataset, SamplesAreRowsOfBothTensors) {
  const TensorDataset dataset(at::arange(6).view({3, 2}), at::arange(10, 13));
  EXPECT_EQ(dataset.size(), 3U);
  const Sample sample = dataset.get(1);
  EXPECT_TRUE(at::equal(sample.data, at::tensor({2, 3}, at::kLong)));
  EXPECT_EQ(sample.target.item<int64_t>(), 11);
  EXPECT_EQ(sample.target.dim(), 0);
}

TEST(TensorDataset, BatchesHoldTheRowsInTheOrderOfTheIndices) {
  for (const at::ScalarType type : {at::kByte, at::kShort, at::kFloat, at::kDouble, at::kBool}) {
    const at::Tensor data = at::arange(60).remainder(7).view({5, 3, 4}).to(type);
    const TensorDataset dataset(data, at::arange(5));
    const std::vector<size_t> indices{4, 0, 0, 3};
    const Sample batch = dataset.get_batch(indices);
    const at::Tensor order = at::tensor({4, 0, 0, 3}, at::kLong);
    EXPECT_TRUE(at::equal(batch.data, data.index_select(0, order)));
    EXPECT_EQ(batch.data.scalar_type(), type);
    EXPECT_TRUE(at::equal(batch.target, order));
  }
}

TEST(TensorDataset, BatchesOwnTheirMemory) {
  at::Tensor data = at::zeros({2, 2});
  const TensorDataset dataset(data, at::arange(2));
  const std::vector<size_t> indices{0, 1};
  dataset.get_batch(indices).data.fill_(7);
  EXPECT_TRUE(at::equal(data, at::zeros({2, 2})));
}

TEST(TensorDataset, RowsThatAreNotContiguousAreGatheredToo) {
  const at::Tensor data = at::arange(12).view({3, 4}).t();  // 4 rows of 3
  const TensorDataset dataset(data, at::arange(4));
  const std::vector<size_t> indices{3, 1};
  EXPECT_TRUE(at::equal(dataset.get_batch(indices).data,
                        at::tensor({3, 7, 11, 1, 5, 9}, at::kLong).view({2, 3})));
}

TEST(TensorDataset, GradientsFlowThroughABatch) {
  at::Tensor table = at::ones({3, 2}).requires_grad_();
  const TensorDataset dataset(table, at::arange(3));
  const std::vector<size_t> indices{2, 2};
  dataset.get_batch(indices).data.sum().backward();
  EXPECT_TRUE(
      at::equal(table.grad(), at::tensor({0., 0., 0., 0., 2., 2.}, at::kFloat).view({3, 2})));
}

TEST(TensorDataset, AnEmptyBatchAndRowsWithoutElementsKeepTheirShape) {
  const TensorDataset dataset(at::empty({3, 0, 4}), at::arange(3));
  const std::vector<size_t> indices{1, 2};
  EXPECT_EQ(dataset.get_batch(indices).data.sizes(), (at::IntArrayRef{2, 0, 4}));
  EXPECT_EQ(dataset.get_batch({}).data.sizes(), (at::IntArrayRef{0, 0, 4}));
  EXPECT_EQ(dataset.get_batch({}).target.sizes(), (at::IntArrayRef{0}));
}

TEST(TensorDataset, RefusesAnIndexThatIsNoRow) {
  const TensorDataset dataset(at::zeros({3}), at::zeros({3}));
  EXPECT_EQ(error_of<UsageError>([&] { dataset.get(3); }).message(),
            "sample 3 was asked of a dataset of 3");
  const std::vector<size_t> indices{0, 9};
  EXPECT_EQ(error_of<UsageError>([&] { dataset.get_batch(indices); }).message(),
            "sample 9 was asked of a dataset of 3");
}

TEST(TensorDataset, RefusesTensorsThatDoNotGoTogether) {
  EXPECT_EQ(error_of<UsageError>([] { TensorDataset(at::zeros({3}), at::zeros({4})); }).message(),
            "TensorDataset: data has 3 rows, target has 4");
  EXPECT_EQ(error_of<UsageError>([] { TensorDataset(at::zeros({3}), at::Tensor()); }).message(),
            "TensorDataset needs two tensors with at least one dimension");
}

TEST(UnlabelledTensorDataset, SamplesAndBatchesAreTensors) {
  const UnlabelledTensorDataset dataset(at::arange(6).view({3, 2}));
  EXPECT_EQ(dataset.size(), 3U);
  EXPECT_TRUE(at::equal(dataset.get(2), at::tensor({4, 5}, at::kLong)));
  const std::vector<size_t> indices{2, 0};
  EXPECT_TRUE(
      at::equal(dataset.get_batch(indices).data, at::tensor({4, 5, 0, 1}, at::kLong).view({2, 2})));
}

TEST(UnlabelledTensorDataset, RefusesAScalar) {
  EXPECT_EQ(error_of<UsageError>([] { UnlabelledTensorDataset(at::scalar_tensor(1)); }).message(),
            "tensor 0 of the dataset has no dimension");
}

TEST(TensorTupleDataset, SamplesAndBatchesAreTuplesOfAllFields) {
  const auto dataset =
      tensor_dataset(at::arange(4), at::arange(8).view({4, 2}), at::arange(4).to(at::kFloat));
  EXPECT_EQ(dataset.size(), 4U);
  const auto [first, second, third] = dataset.get(3);
  EXPECT_EQ(first.item<int64_t>(), 3);
  EXPECT_TRUE(at::equal(second, at::tensor({6, 7}, at::kLong)));
  EXPECT_EQ(third.item<float>(), 3.0F);

  const std::vector<size_t> indices{3, 1};
  const std::tuple<at::Tensor, at::Tensor, at::Tensor> batch = dataset.get_batch(indices);
  EXPECT_TRUE(at::equal(std::get<0>(batch), at::tensor({3, 1}, at::kLong)));
  EXPECT_TRUE(at::equal(std::get<1>(batch), at::tensor({6, 7, 2, 3}, at::kLong).view({2, 2})));
  EXPECT_TRUE(at::equal(std::get<2>(batch), at::tensor({3., 1.}, at::kFloat)));
}

TEST(TensorTupleDataset, RefusesFieldsOfDifferentLength) {
  EXPECT_EQ(error_of<UsageError>([] {
              tensor_dataset(at::zeros({2}), at::zeros({2}), at::zeros({3}));
            }).message(),
            "the tensors of a dataset differ in their number of rows: tensor 0 has 2, tensor 2 has "
            "3");
  EXPECT_EQ(error_of<UsageError>([] { tensor_dataset(at::zeros({2}), at::Tensor()); }).message(),
            "tensor 1 of the dataset is undefined");
}

}  // namespace
}  // namespace accelerate

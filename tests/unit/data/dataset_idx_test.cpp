#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>
#include <vector>

#include "accelerate/idx.h"
#include "data/byte_scaling.h"
#include "unit/data/dataset_files.h"

namespace accelerate {
namespace {

using testing::HasSubstr;

// An IDX file of bytes: `count` elements of the shape, element i is (i * 7) % 256.
std::string idx_of(const std::vector<int>& shape, size_t count) {
  std::string file{'\0', '\0', '\x08', static_cast<char>(shape.size())};
  for (const int extent : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) file += static_cast<char>(extent >> shift);
  }
  for (size_t i = 0; i < count; ++i) file += static_cast<char>(i * 7);
  return file;
}

at::Tensor pixels_of(at::IntArrayRef shape) {
  const int64_t count = c10::multiply_integers(shape);
  return (at::arange(count) * 7).remainder(256).to(at::kByte).view(shape);
}

class IdxFiles : public DatasetFiles {
 protected:
  void SetUp() override {
    DatasetFiles::SetUp();
    images_ = write("images", idx_of({5, 28, 28}, 5 * 28 * 28));
    labels_ = write("labels", idx_of({5}, 5));
  }
  std::filesystem::path images_;
  std::filesystem::path labels_;
};

TEST_F(IdxFiles, SamplesAreBytesAndAnIntegerLabel) {
  const IdxDataset dataset(images_, labels_);
  EXPECT_EQ(dataset.size(), 5U);
  const Sample sample = dataset.get(3);
  EXPECT_TRUE(at::equal(sample.data, pixels_of({5, 28, 28})[3]));
  EXPECT_EQ(sample.target.scalar_type(), at::kLong);
  EXPECT_EQ(sample.target.dim(), 0);
  EXPECT_EQ(sample.target.item<int64_t>(), 21);
}

TEST_F(IdxFiles, BatchesEqualTheStackedSamples) {
  for (const IdxOptions& options : {IdxOptions{}, IdxOptions{.to_float = true},
                                    IdxOptions{.to_float = true, .mean = 0.1307, .stddev = 0.3081},
                                    IdxOptions{.add_channel = true}}) {
    const IdxDataset dataset(images_, labels_, options);
    const std::vector<size_t> indices{4, 0, 4};
    const Sample batch = dataset.get_batch(indices);
    std::vector<at::Tensor> data;
    std::vector<at::Tensor> target;
    for (const size_t index : indices) {
      data.push_back(dataset.get(index).data);
      target.push_back(dataset.get(index).target);
    }
    EXPECT_TRUE(at::equal(batch.data, at::stack(data)));
    EXPECT_TRUE(at::equal(batch.target, at::stack(target)));
  }
}

TEST_F(IdxFiles, CompressedFilesGiveTheSameSamples) {
  const IdxDataset dataset(write_gzip("images.gz", idx_of({5, 28, 28}, 5 * 28 * 28)),
                           write_gzip("labels.gz", idx_of({5}, 5)));
  const IdxDataset plain(images_, labels_);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(at::equal(dataset.get(i).data, plain.get(i).data));
    EXPECT_TRUE(at::equal(dataset.get(i).target, plain.get(i).target));
  }
}

TEST_F(IdxFiles, FloatsAreExactlyThoseOfTorch) {
  for (const auto& [mean, stddev] : std::vector<std::pair<double, double>>{
           {0.0, 1.0}, {0.1307, 0.3081}, {0.2860, 0.3530}, {0.5, 0.5}, {0.4914, 0.2023}}) {
    const IdxDataset dataset(
        images_, labels_, {.to_float = true, .mean = mean, .stddev = stddev, .add_channel = true});
    const at::Tensor expected = pixels_of({5, 1, 28, 28})
                                    .to(at::kFloat)
                                    .div(255)
                                    .sub(static_cast<float>(mean))
                                    .div(static_cast<float>(stddev));
    const std::vector<size_t> indices{0, 1, 2, 3, 4};
    EXPECT_TRUE(at::equal(dataset.get_batch(indices).data, expected)) << mean << ' ' << stddev;
  }
}

TEST(ByteScaling, OddLengthsAndUnusualScalesAreExact) {
  std::vector<uint8_t> bytes(300);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  for (const float stddev : {1e-30F, 1e-40F, 1.0F / 3, 1e30F}) {
    const ByteScaling scaling(0.7F, stddev);
    for (const size_t count : {0U, 1U, 7U, 33U, 300U}) {
      std::vector<float> out(count + 1, -1.0F);
      scaling.apply(bytes.data(), count, out.data());
      for (size_t i = 0; i < count; ++i) {
        const float unit = static_cast<float>(bytes[i]) / 255.0F;
        ASSERT_EQ(out[i], (unit - 0.7F) / stddev) << i << " of " << count << ", " << stddev;
      }
      EXPECT_EQ(out[count], -1.0F);
    }
  }
}

TEST_F(IdxFiles, CopiesShareTheFileAndOutliveTheFirst) {
  auto first = std::make_unique<IdxDataset>(images_, labels_);
  const IdxDataset copy = *first;
  first.reset();
  std::filesystem::remove(images_);
  EXPECT_TRUE(at::equal(copy.get(4).data, pixels_of({5, 28, 28})[4]));
}

TEST_F(IdxFiles, ManyThreadsReadAtOnce) {
  const IdxDataset dataset(images_, labels_, {.to_float = true});
  const at::Tensor expected = pixels_of({5, 28, 28}).to(at::kFloat).div(255);
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 8; ++reader) {
    readers.emplace_back([&] {
      for (size_t i = 0; i < 200; ++i) {
        const std::vector<size_t> indices{i % 5, (i + 1) % 5};
        const at::Tensor batch = dataset.get_batch(indices).data;
        if (!at::equal(batch[0], expected[static_cast<int64_t>(i % 5)])) ++wrong;
      }
    });
  }
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(IdxFiles, ADatasetWithoutImagesIsEmpty) {
  const IdxDataset dataset(write("none", idx_of({0, 28, 28}, 0)), write("no", idx_of({0}, 0)));
  EXPECT_EQ(dataset.size(), 0U);
  EXPECT_EQ(dataset.get_batch({}).data.sizes(), (at::IntArrayRef{0, 28, 28}));
}

TEST_F(IdxFiles, RefusesFilesThatDoNotBelongTogether) {
  const auto four = write("four", idx_of({4}, 4));
  const DataError count = error_of<DataError>([&] { IdxDataset(images_, four); });
  EXPECT_EQ(count.message(), "there are 4 labels for 5 images");
  EXPECT_EQ(count.where(), four.string());

  const DataError swapped = error_of<DataError>([&] { IdxDataset(labels_, images_); });
  EXPECT_EQ(swapped.message(),
            "the IDX file holds no images: bytes in at least two dimensions are needed");
  EXPECT_EQ(swapped.where(), labels_.string());
  EXPECT_THAT(error_of<DataError>([&] { IdxDataset(images_, images_); }).message(),
              HasSubstr("the IDX file holds no labels"));
}

TEST_F(IdxFiles, RefusesImagesThatAreNotBytes) {
  const auto floats = write("floats", std::string("\0\0\x0D\x02\0\0\0\1\0\0\0\1\0\0\0\0", 16));
  EXPECT_THAT(error_of<DataError>([&] { IdxDataset(floats, labels_); }).message(),
              HasSubstr("the IDX file holds no images"));
}

TEST_F(IdxFiles, RefusesDamagedFilesAsReadIdxDoes) {
  const std::string good = idx_of({5, 28, 28}, 5 * 28 * 28);
  const auto damaged = [&](const std::string& bytes) {
    return error_of<DataError>([&] { IdxDataset(write("bad", bytes), labels_); }).message();
  };
  EXPECT_EQ(damaged(good.substr(0, 3)), "the IDX file is truncated: it ends inside its header");
  EXPECT_EQ(damaged(good.substr(0, 15)), "the IDX file is truncated: it ends inside its header");
  EXPECT_EQ(damaged(good.substr(0, good.size() - 1)),
            "the IDX file is truncated: its header promises 3920 bytes of data, it holds 3919");
  EXPECT_EQ(damaged(good + "x"),
            "the IDX file goes on after the 3920 bytes of data that its header promises");
  EXPECT_EQ(damaged("PNG is not IDX"),
            "not an IDX file: its first bytes are not a magic number of the format");
  EXPECT_EQ(damaged(""), "the IDX file is empty");
}

TEST_F(IdxFiles, RefusesMissingFilesAndFolders) {
  EXPECT_EQ(error_of<DataError>([&] { IdxDataset(folder_ / "none", labels_); }).message(),
            "the IDX file cannot be opened: No such file or directory");
  EXPECT_EQ(error_of<DataError>([&] { IdxDataset(folder_, labels_); }).message(),
            "the IDX file cannot be opened: Is a directory");
  EXPECT_EQ(error_of<DataError>([&] { IdxDataset("/dev/null", labels_); }).message(),
            "the IDX file is not a regular file, it cannot be mapped into memory");
}

TEST_F(IdxFiles, RefusesOptionsThatMakeNoSense) {
  EXPECT_EQ(error_of<UsageError>([&] { IdxDataset(images_, labels_, {.mean = 0.5}); }).message(),
            "IdxOptions: mean and stddev have no effect while to_float is off");
  EXPECT_EQ(error_of<UsageError>([&] {
              IdxDataset(images_, labels_, {.to_float = true, .stddev = 0});
            }).message(),
            "IdxOptions: stddev must be positive, got 0.000000");
}

TEST_F(IdxFiles, RefusesAnIndexThatIsNoSample) {
  const IdxDataset dataset(images_, labels_);
  EXPECT_EQ(error_of<UsageError>([&] { dataset.get(5); }).message(),
            "sample 5 was asked of a dataset of 5");
  const std::vector<size_t> indices{5};
  EXPECT_EQ(error_of<UsageError>([&] { dataset.get_batch(indices); }).message(),
            "sample 5 was asked of a dataset of 5");
}

}  // namespace
}  // namespace accelerate

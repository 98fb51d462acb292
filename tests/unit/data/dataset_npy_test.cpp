#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>
#include <vector>

#include "accelerate/dataset.h"
#include "accelerate/npy.h"
#include "unit/data/dataset_files.h"

namespace accelerate {
namespace {

using testing::HasSubstr;

// A .npy file with the given header text, padded as NumPy does.
std::string npy(const std::string& dict, const std::string& data, int version = 1) {
  const size_t prefix = version == 1 ? 10 : 12;
  std::string header = dict;
  while ((prefix + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (size_t i = 0; i < prefix - 8; ++i) file += static_cast<char>(header.size() >> (8 * i));
  return file + header + data;
}

std::string dict(const std::string& descr, const std::string& shape,
                 const std::string& order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
}

class NpyFiles : public DatasetFiles {
 protected:
  std::string refusal(const std::string& bytes) {
    const auto path = write("bad.npy", bytes);
    const DataError error = error_of<DataError>([&] { NpyDataset{path}; });
    EXPECT_EQ(error_of<DataError>([&] { map_npy(path); }).message(), error.message());
    EXPECT_THAT(error.where(), HasSubstr(path.string()));
    EXPECT_NE(error.hint(), "");
    return error.message();
  }
  std::string refusal_of_data(const std::string& header) { return refusal(npy(header, "")); }
};

TEST_F(NpyFiles, SamplesAreRows) {
  const NpyDataset dataset(
      write("a.npy", npy(dict("<f4", "(3, 2)"), bytes_of<float>({1, 2, 3, 4, 5, 6}))));
  EXPECT_EQ(dataset.size(), 3U);
  EXPECT_TRUE(at::equal(dataset.get(1), at::tensor({3., 4.}, at::kFloat)));
  const std::vector<size_t> indices{2, 0};
  EXPECT_TRUE(at::equal(dataset.get_batch(indices).data,
                        at::tensor({5., 6., 1., 2.}, at::kFloat).view({2, 2})));
  EXPECT_EQ(dataset.get_batch({}).data.sizes(), (at::IntArrayRef{0, 2}));
}

TEST_F(NpyFiles, EveryVersionOfTheFormatIsRead) {
  for (const int version : {1, 2, 3}) {
    const auto path = write("a.npy", npy(dict("<i8", "(2,)"), bytes_of<int64_t>({7, -8}), version));
    EXPECT_EQ(NpyDataset(path).get(1).item<int64_t>(), -8) << version;
    EXPECT_TRUE(at::equal(map_npy(path), at::tensor({7, -8}, at::kLong)));
  }
}

TEST_F(NpyFiles, EveryElementTypeIsRead) {
  const auto check = [&](const std::string& descr, const std::string& data, at::ScalarType type) {
    const auto path = write("a.npy", npy(dict(descr, "(2,)"), data));
    std::vector<at::Tensor> values{NpyDataset(path).get(1)};
    if (values[0].scalar_type() == at::kBool) {
      EXPECT_THROW((void)map_npy(path), DataError);  // a byte of the file may be no bool
    } else {
      values.push_back(map_npy(path).select(0, 1));
    }
    for (const at::Tensor& value : values) {
      EXPECT_EQ(value.scalar_type(), type) << descr;
      EXPECT_EQ(value.to(at::kDouble).item<double>(), 1.0) << descr;
    }
  };
  check("|b1", bytes_of<uint8_t>({0, 1}), at::kBool);
  check("|u1", bytes_of<uint8_t>({0, 1}), at::kByte);
  check("|i1", bytes_of<int8_t>({0, 1}), at::kChar);
  check("<i2", bytes_of<int16_t>({0, 1}), at::kShort);
  check("<i4", bytes_of<int32_t>({0, 1}), at::kInt);
  check("<i8", bytes_of<int64_t>({0, 1}), at::kLong);
  check("<u2", bytes_of<uint16_t>({0, 1}), at::kUInt16);
  check("<u4", bytes_of<uint32_t>({0, 1}), at::kUInt32);
  check("<u8", bytes_of<uint64_t>({0, 1}), at::kUInt64);
  check("<f2", bytes_of<uint16_t>({0, 0x3C00}), at::kHalf);
  check("<f4", bytes_of<float>({0, 1}), at::kFloat);
  check("<f8", bytes_of<double>({0, 1}), at::kDouble);
}

TEST_F(NpyFiles, OtherBytesThanZeroAreTrue) {
  const NpyDataset dataset(write("a.npy", npy(dict("|b1", "(1, 3)"), {2, 0, -1})));
  const std::vector<size_t> indices{0};
  const at::Tensor row = dataset.get_batch(indices).data;
  EXPECT_THAT(std::vector<uint8_t>(static_cast<uint8_t*>(row.data_ptr()),
                                   static_cast<uint8_t*>(row.data_ptr()) + 3),
              testing::ElementsAre(1, 0, 1));
}

TEST_F(NpyFiles, OtherSpellingsOfTheHeaderAreRead) {
  const std::string data = bytes_of<int16_t>({1, 2});
  for (const char* header :
       {"{\"shape\":(2L,),\"descr\":\"<i2\",\"fortran_order\":False}",
        "{ 'fortran_order' : True , 'shape' : ( 2 , ) , 'descr' : '<i2' , }"}) {
    EXPECT_EQ(NpyDataset(write("a.npy", npy(header, data))).get(1).item<int64_t>(), 2) << header;
  }
}

TEST_F(NpyFiles, RowsMayBeEmptyAndThereMayBeNone) {
  EXPECT_EQ(NpyDataset(write("a.npy", npy(dict("<f4", "(0, 5)"), ""))).size(), 0U);
  const NpyDataset empty_rows(write("b.npy", npy(dict("<f4", "(4, 0, 5)"), "")));
  EXPECT_EQ(empty_rows.size(), 4U);
  EXPECT_EQ(empty_rows.get(3).sizes(), (at::IntArrayRef{0, 5}));
  EXPECT_EQ(map_npy(folder_ / "b.npy").sizes(), (at::IntArrayRef{4, 0, 5}));
}

TEST_F(NpyFiles, SamplesAreCopiesAndTheFileNeverChanges) {
  const auto path = write("a.npy", npy(dict("<i8", "(2,)"), bytes_of<int64_t>({7, 8})));
  const NpyDataset dataset(path);
  dataset.get(0).fill_(1);
  EXPECT_EQ(dataset.get(0).item<int64_t>(), 7);
  at::Tensor mapped = map_npy(path);
  mapped.fill_(1);
  EXPECT_EQ(mapped[1].item<int64_t>(), 1);
  EXPECT_EQ(NpyDataset(path).get(1).item<int64_t>(), 8);
}

TEST_F(NpyFiles, AMappedTensorOutlivesTheName) {
  const auto path = write("a.npy", npy(dict("<i8", "(2, 1)"), bytes_of<int64_t>({7, 8})));
  at::Tensor row;
  {
    const at::Tensor mapped = map_npy(path);
    row = mapped[1];
  }
  std::filesystem::remove(path);
  EXPECT_EQ(row.item<int64_t>(), 8);
}

TEST_F(NpyFiles, MappedArraysMakeALabelledDataset) {
  const TensorDataset dataset(
      map_npy(write("x.npy", npy(dict("<f4", "(2, 2)"), bytes_of<float>({1, 2, 3, 4})))),
      map_npy(write("y.npy", npy(dict("<i8", "(2,)"), bytes_of<int64_t>({5, 6})))));
  const std::vector<size_t> indices{1};
  EXPECT_TRUE(
      at::equal(dataset.get_batch(indices).data, at::tensor({3., 4.}, at::kFloat).view({1, 2})));
  EXPECT_EQ(dataset.get_batch(indices).target.item<int64_t>(), 6);
}

TEST_F(NpyFiles, RowsAtAnOddPlaceAreCopiedButNotMapped) {
  const std::string header = dict("<i4", "(1,)") + "\n";
  std::string file("\x93NUMPY\1\0", 8);
  file += static_cast<char>(header.size() | 1);
  file += '\0';
  file += header + std::string((header.size() | 1) - header.size(), ' ');
  ASSERT_NE(file.size() % 4, 0U);
  const auto path = write("odd.npy", file + bytes_of<int32_t>({77}));
  EXPECT_EQ(NpyDataset(path).get(0).item<int32_t>(), 77);
  EXPECT_EQ(error_of<DataError>([&] { map_npy(path); }).message(),
            "the elements of the .npy file do not begin at a multiple of their size");
}

TEST_F(NpyFiles, RefusesArraysThatAreNoRowsOfNumbers) {
  EXPECT_EQ(refusal_of_data(dict("<f4", "(3, 2)", "True")),
            "the .npy file is in Fortran order: its rows do not lie together");
  EXPECT_EQ(refusal_of_data(dict(">f4", "(3,)")),
            "the .npy file holds big-endian numbers of type '>f4'");
  EXPECT_EQ(refusal_of_data(dict("|O", "(3,)")), "the .npy file holds Python objects, not numbers");
  EXPECT_EQ(refusal_of_data("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}"),
            "the .npy file holds structures, not numbers");
  EXPECT_EQ(refusal_of_data(dict("<f4", "()")), "the .npy file holds a single number, not rows");
  for (const char* descr :
       {"<c8", "<U3", "|S5", "<f16", "<i3", "<M8[ns]", "", "f4", "<f", "<f4x"}) {
    EXPECT_EQ(
        refusal_of_data(dict(descr, "(1,)")),
        "the .npy file holds elements of type '" + std::string(descr) + "', which cannot be read");
  }
}

TEST_F(NpyFiles, RefusesHeadersThatAreNoDictOfTheFormat) {
  const std::string damaged = "the header of the .npy file is damaged";
  for (const char* header :
       {"", "{", "{}", "[1]", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", "{'descr': '<f4, }",
        "{'descr': <f4', 'fortran_order': False, 'shape': (1,)}"}) {
    EXPECT_EQ(refusal_of_data(header), damaged) << header;
  }
  std::string many = "(1";
  for (int i = 0; i < 64; ++i) many += ", 1";
  EXPECT_EQ(refusal_of_data(dict("<f4", many + ")")), damaged);
}

TEST_F(NpyFiles, RefusesEveryTruncation) {
  const std::string good = npy(dict("<f4", "(2, 3)"), std::string(24, 'x'));
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_NE(refusal(good.substr(0, length)), "no error") << length;
  }
  EXPECT_EQ(refusal(good.substr(0, good.size() - 1)),
            "the header of the .npy file promises 24 bytes of data, the file holds 23");
  EXPECT_EQ(refusal(good + "x"),
            "the header of the .npy file promises 24 bytes of data, the file holds 25");
}

TEST_F(NpyFiles, RefusesOtherFilesAndVersions) {
  EXPECT_EQ(refusal("PK\3\4 a zip file, such as .npz"),
            "not a .npy file: it does not begin with the magic string of the format");
  EXPECT_EQ(refusal(npy(dict("<f4", "(1,)"), "1234", 4)),
            "the .npy file is of version 4, the known ones are 1, 2 and 3");
  EXPECT_EQ(refusal(std::string("\x93NUMPY\2\0\xFF\xFF\xFF\xFF{}", 14)),
            "the header of the .npy file claims 4294967295 bytes, more than there are or than any "
            "plain array needs");
  EXPECT_EQ(refusal(""), "the .npy file is empty");
}

TEST_F(NpyFiles, RefusesShapesWhoseProductOverflows) {
  const std::string claims = "the .npy file claims more data than any file can hold";
  EXPECT_EQ(refusal_of_data(dict("<f8", "(4611686018427387904, 2)")), claims);
  EXPECT_EQ(refusal_of_data(dict("<f8", "(0, 4611686018427387904, 2)")), claims);
  EXPECT_EQ(refusal_of_data(dict("<f8", "(4611686018427387904, 0)")), claims);
}

TEST_F(NpyFiles, RefusesAnIndexThatIsNoRow) {
  const NpyDataset dataset(write("a.npy", npy(dict("|u1", "(2,)"), "ab")));
  EXPECT_EQ(error_of<UsageError>([&] { dataset.get(2); }).message(),
            "sample 2 was asked of a dataset of 2");
}

TEST_F(NpyFiles, AFileOfFourGigabytesCostsNoMemory) {
  const auto path = write("sparse.npy", npy(dict("<f4", "(1048576, 1024)"), ""));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + (uint64_t{4} << 30));
  const size_t before = resident_bytes();
  const NpyDataset dataset(path);
  const at::Tensor mapped = map_npy(path);
  for (size_t i = 0; i < 64; ++i) {
    const std::vector<size_t> indices{i * 16384, 1048575};
    EXPECT_EQ(dataset.get_batch(indices).data.sum().item<float>(), 0);
    EXPECT_EQ(mapped[static_cast<int64_t>(i) * 16384].sum().item<float>(), 0);
  }
  EXPECT_LT(resident_bytes(), before + (size_t{64} << 20));
}

TEST_F(NpyFiles, ManyThreadsReadAtOnce) {
  std::vector<int64_t> values(512);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int64_t>(i * i);
  const NpyDataset dataset(write("a.npy", npy(dict("<i8", "(512,)"), bytes_of(values))));
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (size_t reader = 0; reader < 8; ++reader) {
    readers.emplace_back([&, reader] {
      for (size_t i = reader; i < 512; i += 8) {
        if (dataset.get(i).item<int64_t>() != values[i]) ++wrong;
      }
    });
  }
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace accelerate

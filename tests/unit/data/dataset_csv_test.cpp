#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "accelerate/csv.h"
#include "unit/data/dataset_files.h"

namespace accelerate {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class CsvFiles : public DatasetFiles {
 protected:
  CsvTable read(const std::string& text, const CsvOptions& options = {}) {
    return read_csv(write("a.csv", text), options);
  }
  // "where: message" of the refusal, the folder left out.
  std::string refusal(const std::string& text, const CsvOptions& options = {}) {
    const DataError error = error_of<DataError>([&] { read(text, options); });
    return error.where().substr(folder_.string().size() + 1) + ": " + error.message();
  }
  std::string misuse(const std::string& text, const CsvOptions& options) {
    return error_of<UsageError>([&] { read(text, options); }).message();
  }
};

std::vector<double> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kDouble).contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

TEST_F(CsvFiles, TheTargetIsTakenByNameAndTheRestIsData) {
  const CsvTable table = read("a,label,b\n1,2,3\n4,5,6\n", {.target = {"label"}});
  EXPECT_EQ(table.data.sizes(), (at::IntArrayRef{2, 2}));
  EXPECT_EQ(table.data.scalar_type(), at::kFloat);
  EXPECT_THAT(values(table.data), ElementsAre(1, 3, 4, 6));
  EXPECT_EQ(table.target.sizes(), (at::IntArrayRef{2}));
  EXPECT_THAT(values(table.target), ElementsAre(2, 5));
  EXPECT_THAT(table.names, ElementsAre("a", "label", "b"));
}

TEST_F(CsvFiles, ColumnsComeInTheOrderInWhichTheyAreNamed) {
  const CsvTable table = read("a,b,c,d\n1,2,3,4\n", {.data = {"c", 0}, .target = {3, "b"}});
  EXPECT_THAT(values(table.data), ElementsAre(3, 1));
  EXPECT_EQ(table.target.sizes(), (at::IntArrayRef{1, 2}));
  EXPECT_THAT(values(table.target), ElementsAre(4, 2));
}

TEST_F(CsvFiles, WithoutTargetTheTableHasDataAlone) {
  const CsvTable table = read("1,2\n3,4\n");
  EXPECT_FALSE(table.target.defined());
  EXPECT_THAT(values(table.data), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(table.names, IsEmpty());
}

TEST_F(CsvFiles, TypesAreAsAskedFor) {
  const CsvTable table =
      read("0.1,9007199254740993\n",
           {.target = {1}, .data_dtype = at::kDouble, .target_dtype = at::kLong});
  EXPECT_EQ(table.data.scalar_type(), at::kDouble);
  EXPECT_EQ(table.data.item<double>(), 0.1);
  EXPECT_EQ(table.target.item<int64_t>(), 9007199254740993);
  EXPECT_EQ(misuse("1\n", {.data_dtype = at::kHalf}),
            "CsvOptions: a column cannot be read as Half");
}

TEST_F(CsvFiles, IntegersMayBeWrittenAsOtherNumbersDo) {
  const CsvTable table = read("3.0\n-2e3\n+7\n", {.data_dtype = at::kLong});
  EXPECT_THAT(values(table.data), ElementsAre(3, -2000, 7));
  EXPECT_EQ(refusal("3.5\n", {.data_dtype = at::kLong}),
            "a.csv, line 1, column 1: '3.5' is not an integer");
  EXPECT_EQ(refusal("1\nnan\n", {.header = CsvHeader::kAbsent, .data_dtype = at::kLong}),
            "a.csv, line 2, column 1: 'nan' is not an integer");
  EXPECT_EQ(refusal("1e30\n", {.data_dtype = at::kLong}),
            "a.csv, line 1, column 1: '1e30' is not an integer");
}

TEST_F(CsvFiles, QuotesBlanksSignsAndSpecialNumbersAreRead) {
  const CsvTable table = read(" 1.5 ,\"2\",\t\" -3e-1\" ,+4,inf,-inf\n");
  EXPECT_THAT(values(table.data),
              ElementsAre(1.5, 2, testing::DoubleNear(-0.3, 1e-7), 4, INFINITY, -INFINITY));
  EXPECT_TRUE(at::isnan(read("nan\n").data).item<bool>());
}

TEST_F(CsvFiles, LinesMayEndWithCrLfOrWithTheFileAndBeEmpty) {
  const std::string text = "\xEF\xBB\xBF\r\n\na,b\r\n\r\n1,2\r\n   \n3,4";
  const CsvTable table = read(text);
  EXPECT_THAT(table.names, ElementsAre("a", "b"));
  EXPECT_THAT(values(table.data), ElementsAre(1, 2, 3, 4));
}

TEST_F(CsvFiles, OtherDelimitersAreUsed) {
  EXPECT_THAT(values(read("1;2\n", {.delimiter = ';'}).data), ElementsAre(1, 2));
  EXPECT_THAT(values(read("1\t 2\n", {.delimiter = '\t'}).data), ElementsAre(1, 2));
  EXPECT_THAT(values(read("1 \"2\"\n", {.delimiter = ' '}).data), ElementsAre(1, 2));
  EXPECT_EQ(misuse("1\n", {.delimiter = '"'}),
            "CsvOptions: a quote or a line break cannot be the delimiter");
}

TEST_F(CsvFiles, AHeaderIsFoundWhereAFieldIsNoNumber) {
  EXPECT_THAT(read("1,x\n3,4\n").names, ElementsAre("1", "x"));
  EXPECT_THAT(read("1,2\n3,4\n").names, IsEmpty());
  EXPECT_THAT(values(read("1,2\n3,4\n", {.header = CsvHeader::kPresent}).data), ElementsAre(3, 4));
  EXPECT_EQ(refusal("a,b\n3,4\n", {.header = CsvHeader::kAbsent}),
            "a.csv, line 1, column 1: 'a' is not a number");
}

TEST_F(CsvFiles, QuotedNamesMayHoldDelimitersAndQuotes) {
  const CsvTable table = read("\"size, m\",\"the \"\"b\"\"\"\n1,2\n", {.target = {"the \"b\""}});
  EXPECT_THAT(table.names, ElementsAre("size, m", "the \"b\""));
  EXPECT_THAT(values(table.target), ElementsAre(2));
}

TEST_F(CsvFiles, ColumnsThatAreNotAskedForMayHoldText) {
  const CsvTable table = read("name,x\n\"Smith, John\",1\n,2\n", {.data = {"x"}});
  EXPECT_THAT(values(table.data), ElementsAre(1, 2));
}

TEST_F(CsvFiles, AHeaderAloneGivesNoRows) {
  const CsvTable table = read("a,b,c\n", {.target = {"c"}});
  EXPECT_EQ(table.data.sizes(), (at::IntArrayRef{0, 2}));
  EXPECT_EQ(table.target.sizes(), (at::IntArrayRef{0}));
}

TEST_F(CsvFiles, ErrorsNameLineAndColumn) {
  EXPECT_EQ(refusal("a,b\n1,2\n\n3,x1\n"), "a.csv, line 4, column 2: 'x1' is not a number");
  EXPECT_EQ(refusal("1,2\n3,\n"),
            "a.csv, line 2, column 2: the field is empty, a number is needed");
  EXPECT_EQ(refusal("1,2\n3,1.5abc\n"), "a.csv, line 2, column 2: '1.5abc' is not a number");
  EXPECT_EQ(refusal("1,2\n+-3,1\n"), "a.csv, line 2, column 1: '+-3' is not a number");
  EXPECT_EQ(refusal("1,2\n1e999,1\n"), "a.csv, line 2, column 1: '1e999' is not a number");
  EXPECT_EQ(refusal("1,2\n3\n"), "a.csv, line 2: the line has 1 fields, the first one has 2");
  EXPECT_EQ(refusal("1,2\n3,4,5\n"), "a.csv, line 2: the line has 3 fields, the first one has 2");
  const std::string quote =
      "a quote is not closed, or something follows it before the next "
      "delimiter";
  EXPECT_EQ(refusal("1,2\n3,\"4\n"), "a.csv, line 2, column 2: " + quote);
  EXPECT_EQ(refusal("1,2\n\"3\"x,4\n"), "a.csv, line 2, column 1: " + quote);
  EXPECT_EQ(refusal("\"a\n1\n"), "a.csv, line 1, column 1: " + quote);
}

TEST_F(CsvFiles, RefusesFilesWithoutLines) {
  EXPECT_EQ(refusal(""), "a.csv: the CSV file is empty");
  EXPECT_EQ(refusal("\n \r\n"), "a.csv: the CSV file has no line that is not empty");
  EXPECT_EQ(error_of<DataError>([&] { read_csv(folder_ / "none"); }).message(),
            "the CSV file cannot be opened: No such file or directory");
}

TEST_F(CsvFiles, RefusesColumnsThatDoNotExist) {
  const std::string text = "a,b\n1,2\n";
  const UsageError unknown = error_of<UsageError>([&] { read(text, {.target = {"label"}}); });
  EXPECT_EQ(unknown.message(), "CsvOptions: there is no column named 'label'");
  EXPECT_EQ(unknown.hint(), "the columns are a, b");
  EXPECT_EQ(misuse(text, {.target = {2}}), "CsvOptions: there is no column 2, the file has 2");
  EXPECT_EQ(misuse(text, {.target = {-1}}), "CsvOptions: there is no column -1, the file has 2");
  EXPECT_EQ(misuse(text, {.data = {"a"}, .target = {0}}), "CsvOptions: column 0 is named twice");
  EXPECT_EQ(error_of<UsageError>([&] { read("1,2\n", {.target = {"a"}}); }).hint(),
            "the file has no header: give the column's number");
}

TEST_F(CsvFiles, RefusesAFirstLineThatNamesColumnsAlikeUnlessItIsSaidWhatItIs) {
  const std::string text = "\na,b,a,c,b,a\n1,2,3,4,5,6\n";
  EXPECT_EQ(
      refusal(text),
      "a.csv, line 2: the first line gives the same name to several columns: 'a' (columns 0, 2 and "
      "5); 'b' (columns 1 and 4)");
  EXPECT_EQ(misuse(text, {.header = CsvHeader::kPresent, .target = {"b"}}),
            "CsvOptions: several columns are named 'b': 1 and 4");
  const CsvTable table = read(text, {.header = CsvHeader::kPresent, .data = {2, "c"}});
  EXPECT_THAT(values(table.data), ElementsAre(3, 4));
  EXPECT_THAT(table.names, ElementsAre("a", "b", "a", "c", "b", "a"));
  EXPECT_THAT(values(read("x,x,1\ny,y,2\n", {.header = CsvHeader::kAbsent, .data = {2}}).data),
              ElementsAre(1, 2));
  EXPECT_THAT(values(read("a,,\n1,,\n", {.data = {"a"}}).data), ElementsAre(1));
}

TEST_F(CsvFiles, AWideHeaderBeforeManyEmptyLinesCostsNoMemory) {
  std::string text(200'000, ',');
  text[0] = 'x';
  text += '\n' + std::string(200'000, '\n');
  const size_t before = resident_bytes();
  EXPECT_EQ(read(text).data.sizes(), (at::IntArrayRef{0, 200'000}));
  EXPECT_LT(resident_bytes(), before + (size_t{64} << 20));
}

TEST_F(CsvFiles, TheDatasetGivesRowsWithTheirTarget) {
  const CsvDataset dataset(write("a.csv", "x,y,class\n1,2,0\n3,4,1\n"),
                           {.target = {"class"}, .target_dtype = at::kLong});
  EXPECT_EQ(dataset.size(), 2U);
  EXPECT_THAT(values(dataset.get(1).data), ElementsAre(3, 4));
  EXPECT_EQ(dataset.get(1).target.item<int64_t>(), 1);
  const std::vector<size_t> indices{1, 0};
  EXPECT_THAT(values(dataset.get_batch(indices).target), ElementsAre(1, 0));
  EXPECT_EQ(error_of<UsageError>([&] { CsvDataset(folder_ / "a.csv", {}); }).message(),
            "CsvDataset needs to know the columns of the target");
}

}  // namespace
}  // namespace accelerate

// Pickles: what is read, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "accelerate/errors.h"
#include "files/pickle/pickle_archive.h"
#include "files/pickle/pickle_reader.h"
#include "files/pickle/pickle_text.h"
#include "files/pickle/pickle_writer.h"
#include "unit/files/torch_archive_bytes.h"

namespace accelerate::files {
namespace {

using namespace std::string_literals;
using test::bytes_of;
using test::number_bytes;
using ::testing::HasSubstr;

PickleDocument read(const std::string& pickle) { return read_pickle(bytes_of(pickle), "some.pt"); }

// The pickle of protocol 2 with these instructions.
PickleDocument read2(const std::string& body) { return read("\x80\x02" + body + "."); }

std::string refusal_of(const std::string& body) {
  try {
    read2(body);
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.where(), "some.pt");
    return error.message();
  }
  return "accepted";
}

const PickleValue& root(const PickleDocument& document) { return document.at(document.root); }

template <class T>
T value_of(const std::string& body) {
  return std::get<T>(root(read2(body)));
}

TEST(Pickle, ReadsPlainValues) {
  EXPECT_TRUE(std::holds_alternative<std::monostate>(root(read2("N"))));
  EXPECT_TRUE(value_of<bool>("\x88"));
  EXPECT_FALSE(value_of<bool>("\x89"));
  EXPECT_EQ(value_of<int64_t>("K\xff"), 255);
  EXPECT_EQ(value_of<int64_t>("M\x01\x02"), 513);
  EXPECT_EQ(value_of<int64_t>("J\xfe\xff\xff\xff"), -2);
  EXPECT_EQ(value_of<int64_t>("\x8a\x00"s), 0);
  EXPECT_EQ(value_of<int64_t>("\x8a\x01\xff"), -1);
  EXPECT_EQ(value_of<int64_t>("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"), INT64_MAX);
  EXPECT_EQ(value_of<double>("G\x3f\xf8\x00\x00\x00\x00\x00\x00"s), 1.5);
  EXPECT_EQ(value_of<PickleText>("X\x03\x00\x00\x00"
                                 "abc"s)
                .text,
            "abc");
  EXPECT_EQ(value_of<PickleBytes>("C\x02\x00\xff"s).bytes, "\x00\xff"s);
}

TEST(Pickle, HoldsIntegersAbove64BitsInDecimal) {
  EXPECT_EQ(value_of<PickleBigInteger>("\x8a\x09" + std::string(8, '\xff') + '\0').digits,
            "18446744073709551615");
  EXPECT_EQ(value_of<PickleBigInteger>("\x8a\x09" + std::string(8, '\0') + '\xff').digits,
            "-18446744073709551616");
  EXPECT_THAT(refusal_of("\x8b" + number_bytes(257U) + std::string(257, '\x01')),
              HasSubstr("an integer of more than 256 bytes"));
}

TEST(Pickle, DecimalsAndBytesOfIntegersBelongTogether) {
  for (const std::string decimal :
       {"0", "1", "-1", "127", "128", "-128", "-129", "255", "256", "-256", "18446744073709551615",
        "-9223372036854775808", "123456789012345678901234567890", "-99999999999999999999999"}) {
    const auto bytes = little_endian_of(decimal);
    ASSERT_TRUE(bytes.has_value());
    EXPECT_EQ(decimal_of(*bytes), decimal);
  }
  EXPECT_FALSE(little_endian_of("").has_value());
  EXPECT_FALSE(little_endian_of("-").has_value());
  EXPECT_FALSE(little_endian_of("12a").has_value());
}

TEST(Pickle, ReadsWhatTheMemoKeeps) {
  // [1, x, x] with x = "k"
  const PickleDocument document = read2(
      "](K\x01X\x01\x00\x00\x00kq\x05h\x05"
      "e"s);
  const auto& list = std::get<PickleSequence>(root(document));
  ASSERT_EQ(list.items.size(), 3U);
  EXPECT_EQ(list.items[1], list.items[2]);
  EXPECT_EQ(refusal_of("h\x05"),
            "the pickle of the archive cannot be read: it recalls a value that it did not keep");
}

TEST(Pickle, RefusesClassesAndFunctionsByTheirNameAndCallsNothing) {
  EXPECT_EQ(refusal_of("cos\nsystem\nX\x02\x00\x00\x00ls\x85R"s),
            "the archive holds a 'os.system', which is not among the types that are read; nothing "
            "of the file was executed");
  EXPECT_THAT(refusal_of("cbuiltins\neval\n"), HasSubstr("'builtins.eval'"));
  EXPECT_THAT(refusal_of("c__builtin__\ngetattr\n"), HasSubstr("'__builtin__.getattr'"));
  EXPECT_THAT(refusal_of("ctorch\nload\n"), HasSubstr("'torch.load'"));
  EXPECT_THAT(refusal_of("ctorch.storage\n_load_from_bytes\n"), HasSubstr("_load_from_bytes"));
  EXPECT_THAT(refusal_of("\x8c\x02os\x8c\x06system\x93"), HasSubstr("'os.system'"));
  EXPECT_THAT(refusal_of("c" + std::string(500, 'm') + "\nf\n"),
              HasSubstr("'" + std::string(100, 'm') + "....f'"));
}

TEST(Pickle, RefusesInstructionsThatTorchSaveDoesNotWrite) {
  // Of protocol 0: an object by name, an instance.
  EXPECT_THAT(refusal_of("(ios\nsystem\n"), HasSubstr("instruction 105"));
  EXPECT_THAT(refusal_of("(o"), HasSubstr("instruction 111"));
  EXPECT_THAT(refusal_of("ccollections\nOrderedDict\n)\x81"), HasSubstr("instruction 129"));
  EXPECT_THAT(refusal_of("\x82\x01"), HasSubstr("instruction 130"));  // the registry of copyreg
  EXPECT_THROW(read("\x80\x06N."), CheckpointError);
  EXPECT_THROW(read("\x80\x01N."), CheckpointError);
  EXPECT_THROW(read("N."), CheckpointError);
}

TEST(Pickle, RefusesAStackThatDoesNotHoldWhatIsTaken) {
  for (const std::string body : {"", "0", "1", "2", "t", "\x85", "]a", "}s", "(e", "R", "Q", "b",
                                 "q\x01", "NN", "(N", "(", "N0", "](", "]0"}) {
    EXPECT_NE(refusal_of(body), "accepted") << body;
  }
  EXPECT_EQ(refusal_of("(0N"), "accepted");
  EXPECT_THAT(refusal_of("N.N"), HasSubstr("it goes on after its end"));
}

TEST(Pickle, RefusesToAddToWhatIsNoContainer) {
  EXPECT_THAT(refusal_of("N(e"), HasSubstr("not a list"));
  EXPECT_THAT(refusal_of(")(Ne"), HasSubstr("not a list"));
  EXPECT_THAT(refusal_of("](NNu"), HasSubstr("not a dict"));
  EXPECT_THAT(refusal_of("}(Nu"), HasSubstr("not a dict"));
}

TEST(Pickle, RefusesKeysThatPythonCouldNotHold) {
  EXPECT_THAT(refusal_of("}]Ns"), HasSubstr("a key of a dict"));
  EXPECT_THAT(refusal_of("}}Ns"), HasSubstr("a key of a dict"));
  EXPECT_THAT(refusal_of("}K\x01NsK\x01Ns"), HasSubstr("the same key twice"));
  EXPECT_THAT(refusal_of("}K\x01Ns\x88Ns"), HasSubstr("the same key twice"));  // True == 1
  EXPECT_THAT(refusal_of("}K\x01K\x02\x86NsK\x01K\x02\x86Ns"), HasSubstr("the same key twice"));
  EXPECT_EQ(refusal_of("}K\x01K\x02\x86NsK\x01K\x03\x86Ns"), "accepted");
}

TEST(Pickle, RefusesTextsThatAreNotUtf8) {
  for (const std::string text :
       {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xe2\x82"}) {
    EXPECT_THAT(refusal_of("X" + number_bytes(static_cast<uint32_t>(text.size())) + text),
                HasSubstr("not valid UTF-8"));
  }
  EXPECT_EQ(value_of<PickleText>("X\x0a\x00\x00\x00\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z"s).text,
            "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z");
}

TEST(Pickle, RefusesLengthsBeyondItsEnd) {
  EXPECT_THAT(refusal_of("X\xff\xff\xff\x7f"
                         "abc"),
              HasSubstr("it ends early"));
  EXPECT_THAT(refusal_of("\x8d" + number_bytes(~uint64_t{0})), HasSubstr("it ends early"));
  EXPECT_THAT(refusal_of("\x95" + number_bytes(~uint64_t{0}) + "N"), HasSubstr("it ends early"));
  EXPECT_THAT(refusal_of("cos"), HasSubstr("it ends early"));
}

TEST(Pickle, DoesNotLetAShortPickleCopyALongTextAgainAndAgain) {
  // A text of 64 KiB, encoded to bytes a thousand times: 12 bytes of pickle for each copy.
  std::string body = "X" + number_bytes(uint32_t{65536}) + std::string(65536, 'a') + "q\x01";
  body +=
      "X\x06\x00\x00\x00latin1q\x02"
      "0"
      "0c_codecs\nencode\nq\x03"
      "0]("s;
  for (int i = 0; i < 1000; ++i) body += "h\x03h\x01h\x02\x86R";
  EXPECT_THAT(refusal_of(body + "e"), HasSubstr("repeats the same values too often"));
}

TEST(Pickle, ReadsSetsCountersAndAttributesOfOrderedDicts) {
  const auto set = value_of<PickleSequence>(
      "c__builtin__\nset\n](K\x01K\x02"
      "e\x85R");
  EXPECT_EQ(set.kind, PickleSequence::Kind::kSet);
  EXPECT_EQ(set.items.size(), 2U);
  EXPECT_EQ(value_of<PickleDict>("ccollections\nCounter\n}K\x07K\x02s\x85R").entries.size(), 1U);
  const auto ordered = value_of<PickleDict>(
      "ccollections\nOrderedDict\n)R}X\x01\x00\x00\x00"
      "aNsb"s);
  EXPECT_TRUE(ordered.is_ordered);
  EXPECT_TRUE(ordered.entries.empty());
  EXPECT_THAT(refusal_of("N}b"), HasSubstr("a state is given to something that has none"));
}

// numpy.dtype("f8", False, True), with its state.
std::string numpy_type(const std::string& name, const std::string& order = "<") {
  return "cnumpy\ndtype\nX" + number_bytes(2U) + name + "\x89\x88\x87R(K\x03X" + number_bytes(1U) +
         order + "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK" + std::string(1, '\0') + "tb";
}

TEST(Pickle, ReadsNumbersOfNumpyAsNumbers) {
  const auto scalar = [](const std::string& type, const std::string& bytes) {
    return "cnumpy.core.multiarray\nscalar\n" + numpy_type(type) + "C" +
           std::string(1, static_cast<char>(bytes.size())) + bytes + "\x86R";
  };
  EXPECT_EQ(value_of<double>(scalar("f8", number_bytes(0x4004000000000000U))), 2.5);
  EXPECT_EQ(value_of<double>(scalar("f4", number_bytes(0x3f000000U))), 0.5);
  EXPECT_EQ(value_of<int64_t>(scalar("i2", "\xfe\xff")), -2);
  EXPECT_EQ(value_of<int64_t>(scalar("u2", "\xfe\xff")), 65534);
  EXPECT_TRUE(value_of<bool>(scalar("b1", "\x01")));
  EXPECT_EQ(value_of<PickleBigInteger>(scalar("u8", std::string(8, '\xff'))).digits,
            "18446744073709551615");
  EXPECT_THAT(refusal_of(scalar("f8", "abc")), HasSubstr("of another size than its type"));
  EXPECT_THAT(refusal_of(numpy_type("O8")), HasSubstr("of the type 'O8'"));
  EXPECT_THAT(refusal_of(numpy_type("f8", ">")), HasSubstr("little-endian"));
}

TEST(Pickle, RefusesArraysOfNumpyWhoseShapeDoesNotFitTheirBytes) {
  const auto array = [](const std::string& shape, const std::string& bytes) {
    return "cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK"s + '\0' +
           "\x85"
           "C\x01"
           "b\x87R(K\x01" +
           shape + numpy_type("u4") +
           "\x89"
           "C" +
           std::string(1, static_cast<char>(bytes.size())) + bytes + "tb";
  };
  EXPECT_EQ(refusal_of(array("K\x02\x85", "12345678")), "accepted");
  EXPECT_THAT(refusal_of(array("K\x03\x85", "12345678")), HasSubstr("does not fit its bytes"));
  EXPECT_THAT(refusal_of(array("J\xff\xff\xff\xff\x85", "12345678")),
              HasSubstr("does not fit its bytes"));
}

// A tensor of float32 with this offset, these sizes and strides, over `elements` elements.
std::string tensor(int64_t offset, std::vector<int64_t> sizes, std::vector<int64_t> strides,
                   uint64_t elements) {
  PickleWriter writer;
  writer.tensor({.dtype = "float32",
                 .storage = 0,
                 .offset = offset,
                 .sizes = std::move(sizes),
                 .strides = std::move(strides),
                 .is_conjugate = false,
                 .is_negative = false},
                {.dtype = "float32", .is_untyped = false, .key = "0", .elements = elements});
  return std::move(writer).finish().substr(2);
}

std::string tensor_refusal(const std::string& body) {
  return refusal_of(body.substr(0, body.size() - 1));
}

TEST(Pickle, RefusesTensorsThatReachOutOfTheirStorage) {
  constexpr int64_t kLargest = INT64_MAX;
  EXPECT_EQ(tensor_refusal(tensor(2, {2, 3}, {3, 1}, 8)), "accepted");
  EXPECT_THAT(tensor_refusal(tensor(3, {2, 3}, {3, 1}, 8)), HasSubstr("larger than its storage"));
  EXPECT_THAT(tensor_refusal(tensor(0, {kLargest}, {kLargest}, 8)), HasSubstr("larger"));
  EXPECT_THAT(tensor_refusal(tensor(0, {kLargest, kLargest}, {0, 0}, 8)), HasSubstr("larger"));
  EXPECT_THAT(tensor_refusal(tensor(0, {1}, {1}, uint64_t{1} << 62U)), HasSubstr("larger"));
  EXPECT_THAT(tensor_refusal(tensor(-1, {1}, {1}, 8)), HasSubstr("do not fit each other"));
  EXPECT_THAT(tensor_refusal(tensor(0, {-1}, {1}, 8)), HasSubstr("negative"));
  EXPECT_THAT(tensor_refusal(tensor(0, {2}, {-1}, 8)), HasSubstr("negative"));
  EXPECT_THAT(tensor_refusal(tensor(0, {2}, {}, 8)), HasSubstr("do not fit each other"));
  EXPECT_EQ(tensor_refusal(tensor(8, {0}, {1}, 8)), "accepted");
  EXPECT_THAT(tensor_refusal(tensor(9, {0}, {1}, 8)), HasSubstr("larger than its storage"));
}

TEST(Pickle, ReadsTensorsWithAttributesOfPythonWithoutThese) {
  const std::string plain = tensor(2, {2, 3}, {3, 1}, 8);
  const std::string call = "ctorch._utils\n_rebuild_tensor_v2\n";
  ASSERT_TRUE(plain.starts_with(call) && plain.ends_with("R."));
  const std::string arguments = plain.substr(call.size(), plain.size() - call.size() - 2);
  const auto body = [&](const std::string& function, const std::string& type) {
    return "ctorch._tensor\n_rebuild_from_type_v2\n(" + function + type + arguments + "}tR";
  };
  const PickleDocument document = read2(body(call, "ctorch\nTensor\n"));
  const auto* read = std::get_if<PickleBox<PickleTensor>>(&root(document));
  ASSERT_NE(read, nullptr);
  EXPECT_EQ((*read)->sizes, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(refusal_of(body(call, "ctorch.nn.parameter\nParameter\n")), "accepted");
  EXPECT_THAT(refusal_of(body("ctorch\nSize\n", "ctorch\nTensor\n")), HasSubstr("unknown way"));
  EXPECT_THAT(refusal_of(body(call, "ctorch\nSize\n")), HasSubstr("unknown way"));
  EXPECT_THAT(refusal_of("ctorch\nTensor\n)R"), HasSubstr("torch.save does not call"));
}

TEST(Pickle, KeepsWhatKnownClassesWereGivenAndCallsNothing) {
  constexpr std::array kClasses{PickleClass{"my.module", "Thing"}};
  const auto read = [&](const std::string& body) {
    return read_pickle(bytes_of("\x80\x02" + body + "."), "some.pt", kClasses);
  };
  const auto record_of = [](const PickleDocument& document) {
    return std::get<PickleBox<PickleRecord>>(root(document)).get();
  };
  const PickleDocument made = read("cmy.module\nThing\n)\x81}b");
  EXPECT_EQ(*record_of(made)->type, kClasses[0]);
  ASSERT_TRUE(record_of(made)->state);
  EXPECT_TRUE(std::holds_alternative<PickleDict>(made.at(*record_of(made)->state)));
  const PickleDocument called = read("cmy.module\nThing\nK\x07\x85R");
  EXPECT_FALSE(record_of(called)->state);
  const auto& arguments = std::get<PickleSequence>(called.at(record_of(called)->arguments)).items;
  EXPECT_EQ(std::get<int64_t>(called.at(arguments.at(0))), 7);
  // Records as keys are compared by nobody here.
  const std::string made_one = "cmy.module\nThing\n)\x81";
  EXPECT_NO_THROW(read("}(" + made_one + "K\x01" + made_one + "K\x02u"));

  const auto refusal = [&](const std::string& body) {
    try {
      read(body);
    } catch (const CheckpointError& error) {
      return error.message();
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal("cmy.module\nOther\n)R"), HasSubstr("'my.module.Other'"));
  EXPECT_THAT(refusal("cmy.module\nThing\n)\x81}b}b"), HasSubstr("twice"));
  EXPECT_THAT(refusal("cmy.module\nThing\n}\x81"), HasSubstr("arguments"));
  EXPECT_THAT(refusal("ccollections\nOrderedDict\n)\x81"), HasSubstr("torch.save makes none of"));
  EXPECT_THAT(refusal_of("cmy.module\nThing\n)\x81"), HasSubstr("'my.module.Thing'"));
}

TEST(Pickle, RefusesStoragesThatTheArchiveDoesNotHold) {
  const std::string pickle = "\x80\x02" + tensor(0, {2}, {1}, 2);
  const auto open = [](const std::string& archive) {
    return PickleArchive(bytes_of(archive), "some.pt");
  };
  EXPECT_NO_THROW(open(test::archive_of(pickle, "12345678")));
  EXPECT_THROW(open(test::archive_of(pickle, "1234567")), CheckpointError);
  EXPECT_THROW(open(test::archive_of(pickle, "123456789")), CheckpointError);
  test::StringSink sink;
  ZipWriter zip(sink);
  zip.add_entry("archive/data.pkl", pickle);
  zip.finish();
  try {
    open(sink.text);
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.message(), "the archive has no entry 'archive/data/0'");
  }
}

}  // namespace
}  // namespace accelerate::files

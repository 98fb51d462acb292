// Sizes and shards of models against what the reference recorded.
#include <accelerate/errors.h>
#include <accelerate/model_files.h>

#include "files/safetensors/shard_index.h"
#include "files/size_text.h"
#include "golden/case_log.h"
#include "golden/reference_data.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

TEST(Vectors, StateDictSharding) {
  const json cases = load_vectors("state_dict_sharding.json");
  CaseLog log;
  for (const json& recorded : cases) {
    log.run(recorded, [&] {
      std::vector<files::ShardedTensor> tensors;
      for (const json& bytes : recorded.at("tensor_bytes")) {
        tensors.push_back({.name = "t" + std::to_string(tensors.size()), .bytes = bytes});
      }
      const files::ShardPlan plan =
          files::plan_shards(tensors, recorded.at("max_shard_size"), "model", ".safetensors");
      json shards = json::object();
      for (const files::Shard& shard : plan.shards) shards[shard.file] = shard.tensors;
      log.expect_equal("filename_to_tensors", shards, recorded.at("filename_to_tensors"));
      log.expect_equal("is_sharded", json(plan.is_sharded()), recorded.at("is_sharded"));
      log.expect_equal("total_size", json(plan.total_size),
                       recorded.at("metadata").at("total_size"));
    });
  }
  log.report();
}

TEST(Vectors, ConvertFileSizeToInt) {
  const json cases = load_vectors("convert_file_size_to_int.json");
  CaseLog log;
  for (const json& recorded : cases) {
    const json& input = recorded.at("input");
    // A number is a number of bytes already.
    if (!input.is_string()) continue;
    log.run(recorded, [&] {
      json result;
      try {
        result = files::parse_memory_size(input.get<std::string>());
      } catch (const UsageError&) {
        result = "ValueError";
      }
      log.expect_equal("size", result, recorded.at("expected"));
    });
  }
  log.report();
}

TEST(Vectors, DtypeByteSize) {
  const json sizes = load_vectors("dtype_byte_size.json");
  const std::map<std::string, at::ScalarType> types{{"torch.float32", at::kFloat},
                                                    {"torch.float16", at::kHalf},
                                                    {"torch.bfloat16", at::kBFloat16},
                                                    {"torch.float64", at::kDouble},
                                                    {"torch.int64", at::kLong},
                                                    {"torch.int32", at::kInt},
                                                    {"torch.int16", at::kShort},
                                                    {"torch.int8", at::kChar},
                                                    {"torch.uint8", at::kByte},
                                                    {"torch.bool", at::kBool},
                                                    {"torch.complex64", at::kComplexFloat},
                                                    {"torch.complex128", at::kComplexDouble},
                                                    {"torch.uint16", at::kUInt16},
                                                    {"torch.uint32", at::kUInt32},
                                                    {"torch.uint64", at::kUInt64},
                                                    {"torch.float8_e4m3fn", at::kFloat8_e4m3fn},
                                                    {"torch.float8_e5m2", at::kFloat8_e5m2},
                                                    {"torch.float8_e4m3fnuz", at::kFloat8_e4m3fnuz},
                                                    {"torch.float8_e5m2fnuz", at::kFloat8_e5m2fnuz},
                                                    {"torch.float8_e8m0fnu", at::kFloat8_e8m0fnu}};
  ASSERT_FALSE(sizes.empty());
  for (const auto& [name, bytes] : sizes.items()) {
    ASSERT_TRUE(types.contains(name)) << name;
    EXPECT_EQ(dtype_byte_size(types.at(name)), bytes.get<double>()) << name;
  }
}

}  // namespace
}  // namespace accelerate::test

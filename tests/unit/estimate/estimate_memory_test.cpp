// From parameters to bytes: types, optimizers, strategies, activations, GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "accelerate/errors.h"
#include "estimate/memory_estimate.h"
#include "unit/files/safetensors_files.h"

namespace accelerate::estimate {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGib = uint64_t{1} << 30;

// 1000 numbers: a block of 600 and a module of 400.
ModelSizes thousand() {
  return {.floats = 1000, .fixed_bytes = 16, .largest_layer = "h.0", .largest_floats = 600};
}

uint64_t need(Dtype dtype, Sharding sharding, uint64_t ranks) {
  return training_need(thousand(), 8000, dtype, sharding, ranks).total();
}

TEST(EstimateMemory, TypesHaveTheirBytes) {
  EXPECT_EQ(bytes_in(Dtype::kFloat32, 7), 28);
  EXPECT_EQ(bytes_in(Dtype::kBfloat16, 7), 14);
  EXPECT_EQ(bytes_in(Dtype::kInt8, 7), 7);
  EXPECT_EQ(bytes_in(Dtype::kInt4, 7), 4);
}

TEST(EstimateMemory, OptimizersKeepTheirState) {
  const std::vector<Parameter> parameters{
      {.name = "large", .shape = {4096, 2}},
      {.name = "small", .shape = {100}},
      {.name = "counter", .shape = {5}, .dtype = files::TensorDtype::kI64}};
  EXPECT_EQ(optimizer_bytes(Optimizer::kAdam, parameters), 8 * 8292);
  EXPECT_EQ(optimizer_bytes(Optimizer::kSgd, parameters), 0);
  EXPECT_EQ(optimizer_bytes(Optimizer::kAdam8bit, parameters), 2 * (8192 + 4 * 32) + 8 * 100);
}

TEST(EstimateMemory, DdpHoldsAllOfItOnEveryRankAndGradientsTwice) {
  EXPECT_EQ(need(Dtype::kFloat32, Sharding::kDdp, 1), 16'016);
  EXPECT_EQ(need(Dtype::kFloat32, Sharding::kDdp, 2), 20'016);
  EXPECT_EQ(need(Dtype::kFloat32, Sharding::kDdp, 64), 20'016);
  EXPECT_EQ(need(Dtype::kBfloat16, Sharding::kDdp, 1), 18'016);
}

TEST(EstimateMemory, ZeroSharesOptimizerThenGradientsThenWeights) {
  EXPECT_EQ(need(Dtype::kFloat32, Sharding::kZero1, 1), need(Dtype::kFloat32, Sharding::kDdp, 1));
  EXPECT_EQ(need(Dtype::kFloat32, Sharding::kZero1, 4), 4016 + 8000 + 2000);
  EXPECT_EQ(need(Dtype::kFloat32, Sharding::kZero2, 4), 4016 + 1000 + 2000);
  EXPECT_EQ(need(Dtype::kFloat32, Sharding::kZero3, 4), (1016 + 2400) + (1000 + 2400) + 2000);
}

TEST(EstimateMemory, In16BitsTheCopiesOfAutocastAreWholeOnEveryRank) {
  for (const Sharding sharding : all_shardings()) {
    EXPECT_EQ(need(Dtype::kFloat16, sharding, 4), need(Dtype::kFloat32, sharding, 4) + 2000);
  }
}

TEST(EstimateMemory, ActivationsFollowFromTheBlocks) {
  const ModelLayout gpt{.blocks = {{.layers = 12,
                                    .hidden = 768,
                                    .heads = 12,
                                    .query_width = 768,
                                    .key_width = 768,
                                    .inner = 3072}}};
  // Without attention scores: 34 bytes a token, layer and number of the width, in 16 bits.
  const BatchShape fused{.batch = 2, .sequence = 128};
  EXPECT_EQ(activation_bytes(gpt, Dtype::kFloat16, fused), 2 * 128 * 768 * (12 * 34 + 2));
  const BatchShape plain{.batch = 2, .sequence = 128, .attention = Attention::kPlain};
  EXPECT_EQ(activation_bytes(gpt, Dtype::kFloat16, plain),
            2 * 128 * (768 * (12 * 34 + 2) + 12 * (5 * 12 * 128)));
}

TEST(EstimateMemory, GatedBlocksWithoutDropoutAndLogitsCount) {
  const ModelLayout llama{.blocks = {{.layers = 1,
                                      .hidden = 8,
                                      .heads = 2,
                                      .query_width = 8,
                                      .key_width = 4,
                                      .inner = 16,
                                      .is_gated = true,
                                      .has_dropout = false}},
                          .logits_per_token = 10};
  const uint64_t kept = (8 + 16 + 8) + 8 + (8 + 4 * 16) + 8;
  EXPECT_EQ(activation_bytes(llama, Dtype::kFloat32, {.batch = 1, .sequence = 1}),
            4 * (kept + 8) + 10 * 8);
}

TEST(EstimateMemory, ABatchForNoMachineIsRefused) {
  const ModelLayout model{.blocks = {{.layers = 4096, .hidden = uint64_t{1} << 31}}};
  EXPECT_THROW(
      activation_bytes(model, Dtype::kFloat32, {.batch = 1'000'000, .sequence = 1'000'000}),
      UsageError);
}

ModelSource source_of(uint64_t floats) {
  return {.origin = "model", .parameters = {{.name = "h.0.weight", .shape = {floats}}}};
}

std::optional<uint64_t> gpus_for(const MemoryEstimate& estimate, Dtype dtype,
                                 std::optional<Sharding> sharding) {
  for (const FitEstimate& fit : estimate.fits) {
    if (fit.dtype == dtype && fit.sharding == sharding) return fit.gpus;
  }
  ADD_FAILURE() << "it is not in the list";
  return std::nullopt;
}

TEST(EstimateMemory, TheFewestGpusThatDoAreNamed) {
  // 1 Gi numbers: 16 GiB with Adam on one rank, 4 GiB and a share of 12 GiB with ZeRO-2.
  const auto estimate = estimate_memory(
      source_of(kGib), {.gpus = GpuSet{.count = 8, .bytes = 12 * kGib, .source = "test"}});
  EXPECT_EQ(gpus_for(estimate, Dtype::kFloat32, std::nullopt), 1);
  EXPECT_EQ(gpus_for(estimate, Dtype::kFloat32, Sharding::kDdp), std::nullopt);
  EXPECT_EQ(gpus_for(estimate, Dtype::kFloat32, Sharding::kZero1), std::nullopt);
  EXPECT_EQ(gpus_for(estimate, Dtype::kFloat32, Sharding::kZero2), 2);  // 4 + 12/2 < 11.25
  EXPECT_EQ(gpus_for(estimate, Dtype::kInt4, std::nullopt), 1);
}

TEST(EstimateMemory, WithoutConfigurationActivationsAreRefused) {
  try {
    estimate_memory(source_of(8), {.batch = BatchShape{}});
    ADD_FAILURE() << "no error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr("activations need the config.json"));
  }
}

class EstimateSource : public test::ScratchFolder {
 protected:
  // org/tiny as the hub's cache in `folder` keeps it.
  void write_model_of_the_hub(const std::string& folder) {
    const std::string model = folder + "/models--org--tiny";
    std::filesystem::create_directories(folder_ / model / "snapshots/abc");
    std::filesystem::create_directories(folder_ / model / "refs");
    write(model + "/refs/main", "abc");
    write(model + "/snapshots/abc/config.json", R"({"model_type": "distilbert"})");
  }
};

TEST_F(EstimateSource, HeadersOfAFileTellNamesShapesAndTypes) {
  const auto path = write(
      "w.safetensors",
      test::safetensors_file(R"({"a.weight":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
                             R"("a.count":{"dtype":"I64","shape":[1],"data_offsets":[12,20]}})",
                             20));
  const ModelSource source = find_model(path.string());
  ASSERT_EQ(source.parameters.size(), 2);
  EXPECT_EQ(source.parameters[0].name, "a.weight");
  EXPECT_EQ(source.parameters[0].elements(), 6);
  EXPECT_EQ(measure(source.parameters).floats, 6);
  EXPECT_EQ(measure(source.parameters).fixed_bytes, 8);
  EXPECT_EQ(find_model(folder_.string()).origin, path);  // the only one in its folder
}

TEST_F(EstimateSource, AFolderWithoutAModelIsRefused) {
  EXPECT_THROW(find_model(folder_.string()), CheckpointError);
}

TEST_F(EstimateSource, ANameIsLookedUpInTheCacheOfTheHub) {
  write_model_of_the_hub(".");
  const auto snapshot = folder_ / "models--org--tiny" / "snapshots" / "abc";
  setenv("HF_HUB_CACHE", folder_.c_str(), 1);
  EXPECT_EQ(find_model("org/tiny").origin, snapshot / "config.json");
  EXPECT_THROW(find_model("org/other"), UsageError);
  unsetenv("HF_HUB_CACHE");
}

TEST_F(EstimateSource, AnEmptyVariableNamesNoCacheAndATildeTheUsersFolder) {
  const std::string home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  write_model_of_the_hub("cache/hub");
  setenv("HF_HUB_CACHE", "", 1);
  setenv("HOME", folder_.c_str(), 1);
  setenv("HF_HOME", "~/cache", 1);
  EXPECT_EQ(find_model("org/tiny").origin,
            folder_ / "cache/hub/models--org--tiny/snapshots/abc/config.json");
  for (const char* name : {"HF_HUB_CACHE", "HF_HOME"}) unsetenv(name);
  setenv("HOME", home.c_str(), 1);
}

}  // namespace
}  // namespace accelerate::estimate

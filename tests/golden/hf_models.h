// Recorded models of Hugging Face's transformers: folders with a checkpoint and with what that
// model answered. Every folder that has them is run, whatever its name.
#pragma once

#include <ATen/core/Tensor.h>
#include <accelerate/safetensors.h>
#include <accelerate/transformers/model.h>
#include <accelerate/transformers/pretrained.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace accelerate::test {

// |a - b| against the largest |b| of the tensor, or a floor where numbers are the rounding of
// larger ones that cancel.
//
// Both sides compute in float32 and add up in another order: the reference itself, with another
// kernel for attention, is up to 1e-5 from what it recorded (max_abs_difference_eager_attention in
// io.json). Seen so far were 8e-6 (T5) and 4e-6 (the encoders); each test tells its own in the
// property `largest_difference`.
inline constexpr double kRelative = 5e-5;

// One checkpoint with one of its configurations.
struct RecordedModel {
  std::filesystem::path folder{};
  std::string config_file{};  // "config.json" or "config_v4.json"
  nlohmann::json io{};

  std::string name() const;
  // By the Auto class that io.json names; in float32 unless told otherwise.
  std::shared_ptr<transformers::PretrainedModel> load(
      const transformers::PretrainedOptions& options = {.dtype = at::kFloat}) const;
  // The tensors that were recorded.
  SafetensorsFile tensors() const;
};

// The inputs `<name>.input_ids` and so on.
transformers::ModelInputs inputs_of_case(const RecordedModel& model, const SafetensorsFile& tensors,
                                         const std::string& name);

// Compares and keeps the largest difference.
class Differences {
 public:
  // `floor`: what the largest expected number counts as, at least.
  void expect_near(const std::string& what, const at::Tensor& actual, const at::Tensor& expected,
                   double floor = 0.0);
  void expect_near(const std::string& what, double actual, double expected, double floor = 0.0);
  double largest() const { return largest_; }

 private:
  double largest_ = 0.0;
};

// Runs `check` as a test of its own, in a process of its own, for each recorded model for which
// `wanted` is true. Call before main() starts the tests. Returns their number.
int register_model_tests(const std::string& suite,
                         const std::function<bool(const RecordedModel&)>& wanted,
                         const std::function<void(const RecordedModel&, Differences&)>& check);
int register_model_tests(const std::string& suite,
                         const std::function<void(const RecordedModel&, Differences&)>& check);

}  // namespace accelerate::test

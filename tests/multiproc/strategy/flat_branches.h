// A model of which losses reach a part, with flat parameters and without.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "multiproc/strategy/flat_loop.h"

namespace accelerate::test {

// The flat way last.
inline std::vector<AcceleratorOptions> plain_and_flat(AcceleratorOptions options = on_cpu()) {
  options.ddp.find_unused_parameters = true;
  AcceleratorOptions with_flat = options;
  with_flat.flat = FlatOptions{.dtype = at::kFloat};
  return {options, with_flat};
}

inline std::shared_ptr<Branches> fresh_branches() {
  torch::manual_seed(3);
  return std::make_shared<Branches>();
}

// Which of the parameters have a gradient.
inline std::vector<bool> present(const torch::nn::Module& module) {
  std::vector<bool> all;
  for (const at::Tensor& parameter : module.parameters()) all.push_back(parameter.grad().defined());
  return all;
}

struct FlatBranches : FlatPrepared<Branches> {
  explicit FlatBranches(const AcceleratorOptions& options, const std::string& name = "adamw",
                        std::shared_ptr<Branches> of = fresh_branches())
      : FlatPrepared(options, name, std::move(of)) {}

  at::Tensor loss(int number, const std::string& used) {
    const StepData data = data_of_step(number, 2 * kRows);
    const at::Tensor output = model(rows_of(data.input, accelerator.process_index()), used);
    return output.square().sum() * (1.0 + number);
  }
  void backward(int number, const std::string& used) { accelerator.backward(loss(number, used)); }
};

// `train` gives the values that it ends with, and notes in `had` which parameters have gradients.
using BranchTraining =
    std::function<std::vector<double>(const AcceleratorOptions&, std::vector<bool>& had)>;

// The same with flat parameters and without.
inline void expect_alike(const AcceleratorOptions& options, const BranchTraining& train,
                         const std::string& what = {}) {
  std::vector<std::vector<double>> values;
  std::vector<std::vector<bool>> had;
  for (const AcceleratorOptions& way : plain_and_flat(options)) {
    values.push_back(train(way, had.emplace_back()));
  }
  EXPECT_TRUE(alike(values[1], values[0])) << what;
  EXPECT_EQ(had[1], had[0]) << what;
}

}  // namespace accelerate::test

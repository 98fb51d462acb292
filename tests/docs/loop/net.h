// The user's part of the loops of the page "Which lines change", and the comparison of what they
// learn.
#pragma once

#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

// What the network that was destroyed last had learned.
inline std::optional<torch::Tensor> learned;

struct NetImpl : torch::nn::Module {
  NetImpl() { register_module("line", line); }
  ~NetImpl() override {
    torch::NoGradGuard no_grad;
    learned =
        torch::cat({line->weight.flatten(), line->bias}).to(torch::kCPU, torch::kFloat).clone();
  }
  torch::Tensor forward(const torch::Tensor& x) { return line(x); }
  torch::nn::Linear line{4, 3};
};
TORCH_MODULE(Net);

// All samples are equal, so that the order of a pass does not matter.
struct EqualSamples : torch::data::datasets::Dataset<EqualSamples> {
  torch::data::Example<> get(size_t) override { return {sample, label}; }
  torch::optional<size_t> size() const override { return 64 * 36; }  // 108 updates in three epochs
  torch::Tensor sample = torch::tensor({0.5F, -1.0F, 2.0F, 0.25F});
  torch::Tensor label = torch::tensor(1);
};
inline EqualSamples load_data() { return {}; }

struct LoopPair {
  std::string name;
  int (*before)();
  int (*after)();
};

// Runs one program in an empty folder.
inline torch::Tensor result_of(int (*program)(), const std::filesystem::path& folder) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::filesystem::current_path(folder);
  learned.reset();
  if (program() != 0 || !learned) {
    std::cerr << "a loop has failed\n";
    std::exit(1);
  }
  return *learned;
}

// Runs each loop before and after: on one process they must learn the same.
inline int compare_loops(const std::vector<LoopPair>& pairs) {
  std::string name = (std::filesystem::temp_directory_path() / "accelerate-loops-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) return 1;
  const std::filesystem::path folder = name;
  int wrong = 0;
  for (const LoopPair& pair : pairs) {
    const torch::Tensor before = result_of(pair.before, folder / "before");
    const torch::Tensor after = result_of(pair.after, folder / "after");
    if (torch::allclose(before, after, 1e-4, 1e-5)) continue;
    std::cerr << pair.name << ": the plain loop has learned " << before << "\nthe ported one "
              << after << "\n";
    ++wrong;
  }
  std::filesystem::current_path("/");
  std::filesystem::remove_all(folder);
  std::cout << pairs.size() << " loops, " << wrong
            << " of them learn something else when they are ported\n";
  return wrong == 0 ? 0 : 1;
}

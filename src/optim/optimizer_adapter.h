// A prepared optimizer for code that takes a torch::optim::Optimizer.
#pragma once

#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace accelerate {

// Forwards step(), save() and load(), and has parameter groups of its own, which libtorch hands out
// without asking: agree() brings them and those of the user's optimizer to the same values. One
// thread at a time; the user's optimizer outlives it.
class OptimizerAdapter final : public torch::optim::Optimizer {
 public:
  using Step = std::function<at::Tensor(LossClosure closure)>;

  // The user's parameters, by the groups of `own`, which may hold others, and more or fewer.
  using Groups = std::function<std::vector<std::vector<at::Tensor>>()>;

  // Throws UsageError for options of a type whose fields are not known.
  // `settle` waits for updates whose end is not known yet. `require_whole` throws at the place that
  // it is given where `own` keeps a part of the state only.
  OptimizerAdapter(torch::optim::Optimizer& own, Groups groups, Step step,
                   std::function<void()> settle, std::function<void(const char*)> require_whole);

  at::Tensor step(LossClosure closure = nullptr) override { return step_(std::move(closure)); }
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

  torch::optim::Optimizer& own() const { return own_; }
  // To be called before the state of own() is read or replaced.
  void settle() const { settle_(); }
  // Takes over what was changed on either side. Groups and parameters that came to the user's
  // optimizer come here too. Throws UsageError if both sides have changed an option to different
  // values, and if groups or parameters were added here.
  void agree();

 private:
  // The groups as both sides had them when they last agreed.
  struct Group {
    std::vector<at::Tensor> parameters;  // here
    std::vector<at::Tensor> trained;     // there
    std::unique_ptr<torch::optim::OptimizerOptions> options;
  };

  void require_same_groups() const;
  void take_groups();
  void take_options();

  torch::optim::Optimizer& own_;
  Groups groups_;
  Step step_;
  std::function<void()> settle_;
  std::function<void(const char*)> require_whole_;
  std::vector<Group> known_;
};

}  // namespace accelerate

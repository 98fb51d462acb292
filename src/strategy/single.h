// One process: the model as it is.
#pragma once

#include "accelerate/strategy.h"

namespace accelerate {

// A model whose gradients nobody else has a part in.
class LocalModel final : public ModelStrategy {
 public:
  void before_backward(const at::Tensor&) override {}
  void after_backward() override {}
  void set_gradient_sync(bool on) override { gradient_sync_ = on; }
  bool gradient_sync() const override { return gradient_sync_; }
  void sync_next_backward() override {}
  void require_synchronised(const at::Tensor&) const override {}
  void release() override {}
  bool usable() const override { return true; }

 protected:
  void begin_forward() override {}

 private:
  bool gradient_sync_ = true;
};

class SingleStrategy final : public Strategy {
 public:
  std::string_view name() const override { return "single"; }
  std::shared_ptr<ModelStrategy> wrap(std::shared_ptr<torch::nn::Module>) override {
    return std::make_shared<LocalModel>();
  }
  void join_uneven_inputs(const std::function<void()>& body, const JoinOptions&,
                          const std::vector<std::shared_ptr<ModelStrategy>>&,
                          const std::vector<std::shared_ptr<ModelStrategy>>&) override {
    body();
  }
};

}  // namespace accelerate

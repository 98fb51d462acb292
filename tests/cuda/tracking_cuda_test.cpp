// What is logged of tensors on a GPU. Skipped, visibly, where there is none.
#include <accelerate/accelerate.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <mutex>
#include <string>
#include <vector>

#include "cuda/lone_gpu.h"
#include "support/ranks.h"

namespace accelerate {
namespace {

using test::Rank;
using test::Ranks;
using testing::ElementsAre;

// A tracker that keeps texts of what it is told.
class KeptTexts : public GeneralTracker {
 public:
  std::string name() const override { return "kept"; }
  void store_init_configuration(const TrackerConfig&) override {}
  void log(std::span<const NamedValue> values, const TrackedStep& at) override {
    for (const NamedValue& value : values) {
      keep(std::to_string(*at.step) + " " + value.name + " " +
           std::to_string(static_cast<int>(*value.value.number())));
    }
  }
  bool log_images(std::span<const TrackedImage> images, const TrackedStep&) override {
    keep(images[0].name + " " + std::to_string(images[0].pixels.at(0)));
    return true;
  }
  bool log_histogram(const TrackedHistogram& histogram, const TrackedStep&) override {
    keep(histogram.name + " " + std::to_string(static_cast<int>(histogram.sum)));
    return true;
  }
  std::vector<std::string> texts() {
    const std::lock_guard lock(mutex_);
    return texts_;
  }

 private:
  void keep(std::string text) {
    const std::lock_guard lock(mutex_);
    texts_.push_back(std::move(text));
  }
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

struct CudaTracking : Ranks {};

TEST_F(CudaTracking, LogWaitsForNothingAndKeepsTheValuesOfTheCall) {
  run(1, [](const Rank&) {
    REQUIRE_GPU();
    const auto kept = std::make_shared<KeptTexts>();
    AcceleratorOptions options;
    options.log_with = {kept};
    Accelerator accelerator(options);
    accelerator.init_trackers("demo");
    const auto on_gpu = at::TensorOptions().device(accelerator.device());
    auto a = torch::full({4096, 4096}, 1e-4F, on_gpu);
    auto loss = torch::full({}, 7, on_gpu).requires_grad_();
    auto half = torch::full({1}, 3, on_gpu.dtype(torch::kBFloat16));
    accelerator.log({{"warm", loss}, {"count", torch::full({}, 2, on_gpu.dtype(torch::kLong))}}, 0);
    for (int i = 0; i < 300; ++i) a = torch::mm(a, a);  // much longer than the calls below
    c10::Event computed(c10::kCUDA);
    computed.record(c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(accelerator.device()));
    accelerator.log({{"loss", loss}, {"lr", 5}, {"half", half}}, 1);
    accelerator.log_images({{"image", torch::ones({1, 3, 2, 2}, on_gpu)}}, 1);
    accelerator.log_histogram("weights", torch::ones({1000}, on_gpu), 1);
    EXPECT_FALSE(computed.query()) << "a call has waited for the GPU";
    {
      const torch::NoGradGuard no_grad;
      loss.fill_(9);
      half.fill_(9);
    }
    accelerator.end_training();
    EXPECT_TRUE(computed.query());
    EXPECT_THAT(kept->texts(), ElementsAre("0 warm 7", "0 count 2", "1 loss 7", "1 lr 5",
                                           "1 half 3", "image 255", "weights 1000"));
  });
}

}  // namespace
}  // namespace accelerate

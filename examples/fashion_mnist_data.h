// Fashion-MNIST as a torch dataset, from the files of the Debian package dataset-fashion-mnist.
#pragma once

#include <accelerate/idx.h>
#include <torch/torch.h>

#include <filesystem>
#include <string>

// 60,000 training or 10,000 test images [1, 28, 28], normalised, with labels 0 to 9.
class FashionMnist : public torch::data::datasets::Dataset<FashionMnist> {
 public:
  enum class Part { kTrain, kTest };

  FashionMnist(const std::filesystem::path& folder, Part part) {
    const std::string name = part == Part::kTrain ? "train" : "t10k";
    constexpr double kMean = 0.2860, kDeviation = 0.3530;  // of the training images
    images_ = accelerate::read_idx(folder / (name + "-images-idx3-ubyte.gz"))
                  .unsqueeze(1)
                  .to(torch::kFloat32)
                  .div_(255)
                  .sub_(kMean)
                  .div_(kDeviation);
    labels_ = accelerate::read_idx(folder / (name + "-labels-idx1-ubyte.gz")).to(torch::kInt64);
  }

  torch::data::Example<> get(size_t index) override {
    const auto row = static_cast<int64_t>(index);
    return {images_[row], labels_[row]};
  }

  std::optional<size_t> size() const override { return images_.size(0); }

 private:
  torch::Tensor images_;
  torch::Tensor labels_;
};

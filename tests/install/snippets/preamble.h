// The names that code fragments of the documentation take for granted. Only declared: fragments are
// compiled, never linked. What a fragment declares itself hides the name here.
#pragma once

#include <accelerate/accelerate.h>
#include <torch/torch.h>

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x);
  torch::nn::Linear fc = nullptr;
};
TORCH_MODULE(Net);

extern accelerate::Accelerator accelerator;
extern accelerate::TensorDataset dataset;
extern Net net;
extern torch::optim::AdamW adamw;
extern accelerate::DataLoader<accelerate::TensorDataset> batches;

extern accelerate::PreparedModel<NetImpl> model;
extern accelerate::PreparedOptimizer optimizer;
extern accelerate::DataLoader<accelerate::TensorDataset> loader;
extern accelerate::Batch<accelerate::Sample> batch;

extern torch::Tensor loss, outputs, predictions, target, x;
extern int64_t epoch;
torch::Tensor loss_fn(const torch::Tensor& outputs, const torch::Tensor& target);

// expect: accelerate: this loader's sampler shares the samples between the ranks
// expect: RandomSampler or SequentialSampler of all samples
#include <accelerate/accelerate.h>
#include <torch/torch.h>

void read(accelerate::Accelerator& accelerator);
void read(accelerate::Accelerator& accelerator) {
  torch::data::datasets::TensorDataset data(std::vector<torch::Tensor>(8, torch::ones({1})));
#ifdef MUST_FAIL
  const torch::data::samplers::DistributedRandomSampler sampler(8, 2, 0);
#else
  const torch::data::samplers::RandomSampler sampler(8);
#endif
  auto theirs = torch::data::make_data_loader(data, sampler, torch::data::DataLoaderOptions(2));
  auto loader = accelerator.prepare(*theirs);
}

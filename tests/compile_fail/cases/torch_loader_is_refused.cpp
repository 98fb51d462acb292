// expect: pass an accelerate::data_loader() to prepare()
#include <accelerate/accelerate.h>
#include <torch/torch.h>

void prepare(accelerate::Accelerator& accelerator, const accelerate::TensorDataset& dataset);
void prepare(accelerate::Accelerator& accelerator, const accelerate::TensorDataset& dataset) {
#ifdef MUST_FAIL
  (void)dataset;
  auto batches = torch::data::make_data_loader(
      torch::data::datasets::MNIST(".").map(torch::data::transforms::Stack<>()), 8);
#else
  auto batches = accelerate::data_loader(dataset, {.batch_size = 8});
#endif
  (void)accelerator.prepare(batches);
}

#include <ATen/ATen.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "accelerate/log.h"
#include "accelerate/transformers/pretrained.h"
#include "base/own_rank.h"
#include "transformers/models/allocation.h"
#include "transformers/pretrained/broadcast_loading.h"
#include "transformers/pretrained/checkpoint_reading.h"
#include "transformers/pretrained/generation_settings.h"

namespace accelerate::transformers {
namespace {

void deliver(const PretrainedReport& report, const PretrainedOptions& options) {
  if (options.report) {
    options.report(report);
    return;
  }
  const bool is_first = options.broadcast != nullptr ? options.broadcast->rank() == 0
                                                     : own_rank().empty() || own_rank() == "0";
  if (is_first && !report.message.empty()) log(LogLevel::kWarning, report.message);
}

// More than a model of a thousand layers has; beyond that the layers themselves are what costs.
constexpr int64_t kMostNewTensors = 1 << 17;

// What this machine can hold.
AllocationPlan new_model_allocation(const ModelConfig& config) {
  const at::ScalarType dtype = config.dtype().value_or(at::kFloat);
  const int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return {.dtype = dtype,
          .most_elements = bytes / static_cast<int64_t>(c10::elementSize(dtype)),
          .most_tensors = kMostNewTensors,
          .where = config.name(),
          .elements_reason = "this machine has " + std::to_string(bytes) + " bytes of memory"};
}

}  // namespace

LoadedModel load_here(ModelTask task, const std::string& name_or_folder,
                      const PretrainedOptions& options) {
  check_device(options.device);
  const Checkpoint checkpoint = read_checkpoint(name_or_folder, options);
  const AllocationGuard allocation(allocation_for(checkpoint, options.device));
  LoadedModel loaded{.model = build_model(task, checkpoint.config), .dtype = checkpoint.dtype};
  loaded.report = fill_model(*loaded.model, checkpoint, options);
  loaded.model->generation_config() = checkpoint.generation_config;
  return loaded;
}

std::shared_ptr<PretrainedModel> load_pretrained(ModelTask task, const std::string& name_or_folder,
                                                 const PretrainedOptions& options) {
  const bool alone = options.broadcast == nullptr || options.broadcast->world_size() == 1;
  const LoadedModel loaded = alone ? load_here(task, name_or_folder, options)
                                   : load_by_broadcast(task, name_or_folder, options);
  loaded.model->eval();
  deliver(loaded.report, options);
  return loaded.model;
}

std::shared_ptr<PretrainedModel> make_model(ModelTask task, const ModelConfig& config) {
  const AllocationGuard allocation(new_model_allocation(config));
  const std::shared_ptr<PretrainedModel> model = build_model(task, config);
  std::vector<std::string> names;
  for (const auto& item : model->named_parameters()) names.push_back(item.key());
  initialise_parameters(*model, names);
  model->generation_config() = generation_settings_of(config);
  model->train();
  return model;
}

}  // namespace accelerate::transformers

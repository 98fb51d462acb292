#include <ATen/ATen.h>

#include <memory>
#include <string>

#include "accelerate/log.h"
#include "accelerate/transformers/pretrained.h"
#include "base/environment.h"
#include "transformers/models/allocation.h"
#include "transformers/pretrained/checkpoint_reading.h"
#include "transformers/pretrained/generation_settings.h"

namespace accelerate::transformers {
namespace {

void deliver(const PretrainedReport& report, const PretrainedOptions& options) {
  if (options.report) {
    options.report(report);
    return;
  }
  const bool is_first = environment_variable("RANK").value_or("0") == "0";
  if (is_first && !report.message.empty()) log(LogLevel::kWarning, report.message);
}

}  // namespace

std::shared_ptr<PretrainedModel> load_pretrained(ModelTask task, const std::string& name_or_folder,
                                                 const PretrainedOptions& options) {
  const Checkpoint checkpoint = read_checkpoint(name_or_folder, options);
  const AllocationGuard allocation(allocation_for(checkpoint, options.device));
  const std::shared_ptr<PretrainedModel> model = build_model(task, checkpoint.config);
  const PretrainedReport report = fill_model(*model, checkpoint, options);
  model->generation_config() = checkpoint.generation_config;
  model->eval();
  deliver(report, options);
  return model;
}

std::shared_ptr<PretrainedModel> make_model(ModelTask task, const ModelConfig& config) {
  const AllocationGuard allocation(
      {.dtype = config.dtype().value_or(at::kFloat), .where = config.name()});
  const std::shared_ptr<PretrainedModel> model = build_model(task, config);
  std::vector<std::string> names;
  for (const auto& item : model->named_parameters()) names.push_back(item.key());
  initialise_parameters(*model, names);
  model->generation_config() = generation_settings_of(config);
  model->train();
  return model;
}

}  // namespace accelerate::transformers

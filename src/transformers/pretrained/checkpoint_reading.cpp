#include "transformers/pretrained/checkpoint_reading.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/model_files.h"
#include "base/message_text.h"
#include "transformers/pretrained/architecture_choice.h"
#include "transformers/pretrained/dtype_names.h"
#include "transformers/pretrained/generation_settings.h"
#include "transformers/pretrained/key_names.h"
#include "transformers/pretrained/loading_report.h"

namespace accelerate::transformers {
namespace {

// What a model may have beyond the tensors of its files: heads that are new, embeddings that the
// caller wants larger.
constexpr int64_t kTimes = 4;
constexpr int64_t kMoreElements = int64_t{1} << 28;
constexpr int64_t kMoreTensors = 1 << 12;

void apply(const PretrainedOptions& options, ModelConfig& config) {
  for (const auto& [key, value] : options.config) {
    config.set(key, value, "PretrainedOptions::config");
  }
  if (!options.labels.empty()) {
    if (options.num_labels && *options.num_labels != static_cast<int64_t>(options.labels.size())) {
      throw UsageError({.what = "num_labels is " + std::to_string(*options.num_labels) +
                                ", but there are " + std::to_string(options.labels.size()) +
                                " names of labels",
                        .hint = "leave num_labels out"});
    }
    config.set_labels(options.labels);
  } else if (options.num_labels) {
    if (*options.num_labels < 1) {
      throw UsageError(
          {.what = "a model cannot have " + std::to_string(*options.num_labels) + " labels",
           .where = "PretrainedOptions::num_labels"});
    }
    config.set_num_labels(*options.num_labels);
  }
}

void check_dtype(at::ScalarType dtype) {
  if (name_of_dtype(dtype) != nullptr) return;
  throw UsageError(
      {.what = std::string("a model cannot be loaded in the type ") + c10::toString(dtype),
       .where = "PretrainedOptions::dtype",
       .hint = "use float32, float16, bfloat16 or float64"});
}

// Tensors of the same name in a tied pair that have values of their own.
bool differ(const KeyPlan::BothOfTied& pair, const ModelStateDict& stored) {
  return !at::equal(stored[pair.own_in_files], stored[pair.other_in_files]);
}

// The other names that were given parameters of their own.
std::vector<std::string> untie_what_differs(PretrainedModel& model, const Checkpoint& checkpoint,
                                            const KeyPlan& plan) {
  std::vector<std::string> untied;
  if (plan.both_of_tied.empty()) return untied;
  const ModelStateDict stored = load_state_dict(checkpoint.weights.checkpoint,
                                                {.follow_links = checkpoint.weights.follow_links});
  for (const KeyPlan::BothOfTied& pair : plan.both_of_tied) {
    if (!differ(pair, stored)) continue;
    if (!model.untie(pair.other)) {
      throw CheckpointError(
          {.what = in_quotes(pair.own_in_files) + " and " + in_quotes(pair.other_in_files) +
                   " are one tensor in this model, but have different values in the files",
           .where = checkpoint.weights.checkpoint.string(),
           .hint = "remove one of them from the files"});
    }
    untied.push_back(pair.other);
  }
  return untied;
}

// Of what was untied. Where the configuration ties no words, heads of their own are no surprise.
std::vector<std::string> worth_saying(std::vector<std::string> untied, const ModelConfig& config) {
  if (config.flag("tie_word_embeddings", true)) return untied;
  std::erase_if(untied,
                [](const std::string& name) { return !name.ends_with("embed_tokens.weight"); });
  return untied;
}

void refuse_mismatches(const KeyPlan& plan, const Checkpoint& checkpoint) {
  std::vector<std::string> all;
  for (const KeyPlan::OtherShape& each : plan.mismatched) all.push_back(mismatch_text(each));
  throw CheckpointError({.what = "the files do not fit the model: " + listed(all, "; "),
                         .where = checkpoint.weights.checkpoint.string(),
                         .hint = "for a new head of another size set ignore_mismatched_sizes; "
                                 "otherwise config.json and the files belong to different models"});
}

// "cuda" is the device that is current, "cuda:0" a certain one.
bool is_on(const at::Tensor& tensor, c10::Device device) {
  return tensor.device().type() == device.type() &&
         (!device.has_index() || tensor.device().index() == device.index());
}

// Whether the name of the module is one of the parts of the parameter's name.
bool belongs_to(const std::string& parameter, const std::string& module) {
  return ("." + parameter).find("." + module + ".") != std::string::npos;
}

}  // namespace

void check_device(c10::Device device) {
  try {
    (void)at::empty({1}, at::TensorOptions().device(device));
  } catch (const c10::Error& error) {
    // The rest of it tells those who build libtorch what to look at.
    const std::string reason = error.what_without_backtrace();
    throw UsageError({.what = "the device " + device.str() +
                              " cannot be used: " + reason.substr(0, reason.find(". ")),
                      .where = "PretrainedOptions::device"});
  }
}

Checkpoint read_checkpoint(const std::string& name_or_folder, const PretrainedOptions& options) {
  Checkpoint checkpoint{.folder = find_pretrained(name_or_folder, options.revision)};
  checkpoint.config = ModelConfig::from_file(checkpoint.folder);
  if (checkpoint.config.has("quantization_config")) {
    throw DataError({.what = "the weights are quantised, which cannot be loaded here",
                     .where = checkpoint.config.name(),
                     .hint = "take a checkpoint in float32, float16 or bfloat16"});
  }
  apply(options, checkpoint.config);
  checkpoint.is_changed = !options.config.empty();
  checkpoint.generation_config = read_generation_config(checkpoint.folder, checkpoint.config);
  checkpoint.weights = find_weight_files(checkpoint.folder, options.follow_links);
  if (options.dtype) check_dtype(*options.dtype);
  checkpoint.dtype = options.dtype               ? *options.dtype
                     : checkpoint.config.dtype() ? *checkpoint.config.dtype()
                                                 : checkpoint.weights.dtype().value_or(at::kFloat);
  checkpoint.config.remove("torch_dtype");
  checkpoint.config.set("dtype", name_of_dtype(checkpoint.dtype));
  return checkpoint;
}

AllocationPlan allocation_for(const Checkpoint& checkpoint, c10::Device device) {
  const int64_t elements = checkpoint.weights.elements();
  const auto tensors = static_cast<int64_t>(checkpoint.weights.tensors.size());
  const std::string reason = "the files hold " + std::to_string(tensors) + " tensors with " +
                             std::to_string(elements) + " parameters";
  return {.dtype = checkpoint.dtype,
          .device = device,
          .most_elements = kTimes * elements + kMoreElements,
          .most_tensors = kTimes * tensors + kMoreTensors,
          .where = checkpoint.config.name() +
                   (checkpoint.is_changed ? ", as PretrainedOptions::config changes it" : ""),
          .elements_reason = reason,
          .tensors_reason = reason};
}

std::shared_ptr<PretrainedModel> build_model(ModelTask task, const ModelConfig& config) {
  const Architecture architecture = choose_architecture(task, config);
  std::shared_ptr<PretrainedModel> model = architecture.make(config);
  if (model == nullptr) {
    throw UsageError(
        {.what = "the function registered for it returns no model", .where = architecture.name});
  }
  return model;
}

void settle_parameters(PretrainedModel& model, at::ScalarType dtype, c10::Device device) {
  const at::NoGradGuard no_gradient;
  const std::vector<std::string> kept =
      dtype == at::kHalf ? model.keep_in_fp32_modules() : std::vector<std::string>();
  for (const auto& item : model.named_parameters()) {
    at::Tensor parameter = item.value();
    if (!parameter.is_floating_point()) continue;
    const bool is_kept = std::ranges::any_of(
        kept, [&](const std::string& module) { return belongs_to(item.key(), module); });
    const at::ScalarType wanted = is_kept ? at::kFloat : dtype;
    if (parameter.is_meta()) {  // built inside of init_empty_weights(): it stays there
      if (parameter.scalar_type() != wanted) parameter.set_data(parameter.detach().to(wanted));
      continue;
    }
    if (parameter.scalar_type() == wanted && is_on(parameter, device)) continue;
    parameter.set_data(
        at::empty(parameter.sizes(), parameter.options().dtype(wanted).device(device)));
  }
  for (const at::Tensor& buffer : model.buffers()) {
    if (!buffer.is_meta() && !is_on(buffer, device)) buffer.set_data(buffer.to(device));
  }
}

std::vector<std::string> newly_initialised(const PretrainedReport& report) {
  std::vector<std::string> names = report.missing_keys;
  names.insert(names.end(), report.mismatched_keys.begin(), report.mismatched_keys.end());
  return names;
}

void initialise_parameters(PretrainedModel& model, const std::vector<std::string>& names) {
  const at::NoGradGuard no_gradient;
  const std::set<std::string> wanted(names.begin(), names.end());
  for (const auto& item : model.named_parameters()) {
    if (wanted.contains(item.key())) model.initialise(item.key(), item.value());
  }
}

PretrainedReport fill_model(PretrainedModel& model, const Checkpoint& checkpoint,
                            const PretrainedOptions& options) {
  KeyPlan plan = plan_keys(model, get_state_dict(model), checkpoint.weights.tensors);
  const std::vector<std::string> untied = untie_what_differs(model, checkpoint, plan);
  if (!untied.empty()) {
    plan = plan_keys(model, get_state_dict(model), checkpoint.weights.tensors);
  }
  if (!plan.mismatched.empty() && !options.ignore_mismatched_sizes) {
    refuse_mismatches(plan, checkpoint);
  }
  settle_parameters(model, checkpoint.dtype, options.device);
  LoadModelOptions load{.follow_links = checkpoint.weights.follow_links};
  load.key_mapping = [&](const std::string& name) {
    const auto found = plan.names.find(name);
    return found == plan.names.end() ? std::string() : found->second;
  };
  load_checkpoint_in_model(model, checkpoint.weights.checkpoint, load);
  PretrainedReport report = make_report(model.architecture(), checkpoint.folder.string(), plan,
                                        worth_saying(untied, checkpoint.config));
  initialise_parameters(model, newly_initialised(report));
  return report;
}

}  // namespace accelerate::transformers

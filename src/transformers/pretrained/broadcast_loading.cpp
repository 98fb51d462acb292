#include "transformers/pretrained/broadcast_loading.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "accelerate/empty_weights.h"
#include "accelerate/errors.h"
#include "accelerate/model_files.h"
#include "comm/agreement.h"
#include "transformers/models/allocation.h"
#include "transformers/pretrained/checkpoint_reading.h"

namespace accelerate::transformers {
namespace {

using nlohmann::json;

// What the other ranks need before they can take the tensors.
json description_of(const LoadedModel& loaded) {
  json tensors = json::array();
  for (const auto& item : get_state_dict(*loaded.model)) tensors.push_back(item.key());
  const PretrainedReport& report = loaded.report;
  return {{"config", loaded.model->config().to_json()},
          {"config_name", loaded.model->config().name()},
          {"generation", loaded.model->generation_config().to_json()},
          {"generation_name", loaded.model->generation_config().name()},
          {"dtype", static_cast<int64_t>(loaded.dtype)},
          {"tensors", tensors},
          {"empty", has_empty_weights(*loaded.model)},
          {"missing", report.missing_keys},
          {"unexpected", report.unexpected_keys},
          {"mismatched", report.mismatched_keys},
          {"message", report.message}};
}

// A rank that failed throws its own error, the others the same one; one that is not of this library
// is about a checkpoint.
comm::TogetherOptions while_loading() {
  return {.without_timeout = true,
          .keep_own = true,
          .retell = [](const Communicator& ranks, const comm::RankFailure& failure) {
            comm::RankFailure told = failure;
            if (told.kind != comm::ErrorKind::kData && told.kind != comm::ErrorKind::kUsage) {
              told.kind = comm::ErrorKind::kCheckpoint;
            }
            comm::throw_as_it_was(ranks, told);
          }};
}

// A text that came from the files of one rank need not be UTF-8 in all its names.
std::string packed(const json& value) {
  const std::vector<uint8_t> bytes = json::to_cbor(value);
  return {bytes.begin(), bytes.end()};
}

json unpacked(const std::string& bytes) { return json::from_cbor(bytes); }

// What must be the same on all ranks. The name of the model need not.
std::string agreement_of(ModelTask task, const PretrainedOptions& options) {
  json settings = json::object();
  for (const auto& [key, value] : options.config) {
    ModelConfig config;
    config.set("value", value);
    settings[key] = config.to_json();
  }
  return packed({{"task", static_cast<int>(task)},
                 {"dtype", options.dtype ? static_cast<int>(*options.dtype) : -1},
                 {"num_labels", options.num_labels.value_or(-1)},
                 {"labels", options.labels},
                 {"config", settings},
                 {"ignore_mismatched_sizes", options.ignore_mismatched_sizes},
                 {"device", static_cast<int>(options.device.type())}});
}

void check_agreement(ModelTask task, const PretrainedOptions& options) {
  comm::require_same(
      *options.broadcast, agreement_of(task, options), [](const comm::RankDifference& difference) {
        return ErrorInfo{.what = "rank " + std::to_string(difference.rank) +
                                 " loads the model for another task, with other options or on "
                                 "another kind of device than rank " +
                                 std::to_string(difference.first_rank),
                         .where = "from_pretrained()",
                         .hint = "give all ranks the same, or leave broadcast out"};
      });
}

// The model on a rank that reads no files.
LoadedModel receive_model(ModelTask task, const json& description,
                          const PretrainedOptions& options) {
  check_device(options.device);
  const auto text = [&](const char* key) { return description.at(key).get<std::string>(); };
  const auto texts = [&](const char* key) {
    return description.at(key).get<std::vector<std::string>>();
  };
  const ModelConfig config = ModelConfig::from_json(text("config"), text("config_name"));
  const auto dtype = static_cast<at::ScalarType>(description.at("dtype").get<int64_t>());
  const AllocationGuard allocation(
      {.dtype = dtype, .device = options.device, .where = config.name()});
  LoadedModel loaded{.model = build_model(task, config)};
  const std::vector<std::string> tensors = texts("tensors");
  for (const auto& [other, name] : loaded.model->tied_weights()) {
    if (std::ranges::find(tensors, other) != tensors.end()) loaded.model->untie(other);
  }
  settle_parameters(*loaded.model, dtype, options.device);
  loaded.model->generation_config() =
      ModelConfig::from_json(text("generation"), text("generation_name"));
  loaded.report = {.missing_keys = texts("missing"),
                   .unexpected_keys = texts("unexpected"),
                   .mismatched_keys = texts("mismatched"),
                   .message = text("message")};
  if (get_state_dict(*loaded.model).keys() != tensors) {
    throw UsageError(
        {.what = "the model that this rank makes has other tensors than that of rank " +
                 std::to_string(options.broadcast->global_ranks()[0]),
         .hint = "register the same architectures on all ranks"});
  }
  if (has_empty_weights(*loaded.model) != description.at("empty").get<bool>()) {
    throw UsageError({.what = "some ranks load the model inside of init_empty_weights(), others "
                              "do not",
                      .where = "from_pretrained()",
                      .hint = "open the scope on all ranks, or leave broadcast out"});
  }
  // The values come from rank 0; the random numbers are drawn all the same, so that the generators
  // of the ranks stay together.
  initialise_parameters(*loaded.model, newly_initialised(loaded.report));
  return loaded;
}

}  // namespace

LoadedModel load_by_broadcast(ModelTask task, const std::string& name_or_folder,
                              const PretrainedOptions& options) {
  check_agreement(task, options);
  Communicator& group = *options.broadcast;
  const bool reads = group.rank() == 0;
  LoadedModel loaded;

  // Files of any size, perhaps from the network: the others wait as long as it takes.
  const auto read = [&] {
    loaded = load_here(task, name_or_folder, options);
    return packed(description_of(loaded));
  };
  const json description = unpacked(comm::broadcast_together(group, 0, read, while_loading()));
  const auto build = [&] {
    if (!reads) loaded = receive_model(task, description, options);
  };
  comm::together(group, build, while_loading());

  // Empty ones get theirs in prepare(), which sends those of rank 0 in parts.
  if (description.at("empty").get<bool>()) return loaded;
  const at::NoGradGuard no_gradient;
  for (const auto& item : get_state_dict(*loaded.model)) {
    at::Tensor tensor = item.value().detach();
    group.broadcast(tensor);
  }
  return loaded;
}

}  // namespace accelerate::transformers

// A configuration of DeepSpeed, as text or in base64, is refused with a ConfigError that can be
// printed, or it becomes a plan with rates that are numbers.
#include <cmath>
#include <string>

#include "accelerate/errors.h"
#include "check.h"
#include "config/sharding/deepspeed_plan.h"
#include "config/sharding/deepspeed_run.h"

namespace {

using namespace accelerate::config;  // NOLINT(google-build-using-namespace): a small program

void check_text(const std::string& text) {
  for (const char c : text) FUZZ_CHECK(static_cast<unsigned char>(c) >= ' ' && c != 0x7f);
}

DeepspeedPlan plan_of(DeepspeedDocument document, const std::string& precision) {
  document = deepspeed_document([](std::string_view) { return std::nullopt; }, std::move(document));
  set_precision(document, precision, "the program");
  fill_auto(document, {.ranks = 2,
                       .hidden_sizes = {64},
                       .lr = 0.5,
                       .weight_decay = 0.25,
                       .warmup_steps = 3,
                       .training_steps = 9});
  return deepspeed_plan(document, 2);
}

void check_plan(const DeepspeedPlan& plan) {
  FUZZ_CHECK(plan.batch.total == plan.batch.micro * plan.batch.accumulation_steps * 2);
  FUZZ_CHECK(plan.zero.stage >= 0 && plan.zero.stage <= 3);
  for (const std::string& key : plan.without_effect) check_text(key);
  if (!plan.scheduler) return;
  for (const int64_t updates : {0, 1, 2, 100}) {
    FUZZ_CHECK(!std::isnan(warmup_rate(*plan.scheduler, updates, {0.5})));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const char* precision : {"no", "bf16"}) {
    try {
      const bool is_json = text.find('{') != text.npos;
      check_plan(
          plan_of(is_json ? parse_deepspeed(text, "ds.json") : read_deepspeed(text), precision));
    } catch (const accelerate::ConfigError& error) {
      FUZZ_CHECK(!error.message().empty());
      for (const std::string& part : {error.message(), error.where(), error.hint()}) {
        check_text(part);
      }
    }
  }
  return 0;
}

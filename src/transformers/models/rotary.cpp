#include "transformers/models/rotary.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/ops.h"
#include "accelerate/step_capture.h"

namespace accelerate::transformers {
namespace {

constexpr int64_t kFirstPositions = 256;

[[noreturn]] void refuse(const ModelConfig& config, const std::string& key,
                         const std::string& what) {
  throw DataError({.what = "'" + key + "' in " + config.source_of(key) + " " + what});
}

double positive(const ModelConfig& config, const std::string& key, double value) {
  if (!(value > 0) || !std::isfinite(value)) refuse(config, key, "must be above 0");
  return value;
}

double yarn_attention(const ModelConfig& config, const std::string& group, double factor) {
  if (config.has(group + "attention_factor")) return config.number(group + "attention_factor");
  const auto scale = [&](double by) {
    return factor <= 1 ? 1.0 : 0.1 * by * std::log(factor) + 1.0;
  };
  const double one = config.number(group + "mscale", 0);
  const double all = config.number(group + "mscale_all_dim", 0);
  return one != 0 && all != 0 ? scale(one) / scale(all) : scale(1);
}

at::Tensor powers(const RotaryOptions& options, double theta) {
  const at::Tensor places =
      at::arange(0, options.width, 2, at::kFloat) / static_cast<double>(options.width);
  return at::pow(theta, places);
}

// Pairs that turn often within the text keep their speed, those that turn rarely are slowed down.
at::Tensor llama3_frequencies(const RotaryOptions& options) {
  const at::Tensor plain = powers(options, options.theta).reciprocal();
  const auto length = static_cast<double>(options.original_positions);
  const at::Tensor turns = length / (2 * std::numbers::pi / plain);
  const double low = options.low_frequency_factor;
  const double high = options.high_frequency_factor;
  const at::Tensor smooth = (turns - low) / (high - low);
  const at::Tensor between = (1 - smooth) * plain / options.factor + smooth * plain;
  const at::Tensor slow = at::where(turns < low, plain / options.factor, between);
  return at::where(turns > high, plain, slow);
}

// The same with a straight ramp between the pairs.
at::Tensor yarn_frequencies(const RotaryOptions& options) {
  const auto width = static_cast<double>(options.width);
  const auto place = [&](double turns) {
    const auto length = static_cast<double>(options.original_positions);
    return width * std::log(length / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(options.theta));
  };
  double low = place(options.beta_fast);
  double high = place(options.beta_slow);
  if (options.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, width - 1);
  if (low == high) high += 0.001;
  const at::Tensor ramp =
      ((at::arange(options.width / 2, at::kFloat) - low) / (high - low)).clamp(0, 1);
  const at::Tensor all = powers(options, options.theta);
  return (options.factor * all).reciprocal() * ramp + all.reciprocal() * (1 - ramp);
}

}  // namespace

RotaryOptions RotaryOptions::from_config(const ModelConfig& config, int64_t head_width) {
  const std::string group = config.has("rope_scaling") ? "rope_scaling." : "rope_parameters.";
  RotaryOptions options;
  options.width = head_width;
  options.positions = config.size("max_position_embeddings", 2048);
  options.type = config.text(group + "rope_type", config.text(group + "type", "default"));
  const std::string theta =
      config.has(group + "rope_theta") ? group + "rope_theta" : std::string("rope_theta");
  options.theta = positive(config, theta, config.number(theta, 10000.0));
  const bool stretched = options.type == "llama3" || options.type == "yarn";
  if (!stretched && options.type != "default" && options.type != "linear" &&
      options.type != "dynamic") {
    refuse(config, group + "rope_type",
           "is '" + options.type + "'; known: default, dynamic, linear, llama3 and yarn");
  }
  if (head_width % 2 != 0) refuse(config, "head_dim", "must be even");
  if (config.number(group + "partial_rotary_factor", config.number("partial_rotary_factor", 1)) !=
      1) {
    refuse(config, "partial_rotary_factor", "must be 1");
  }
  if (options.type == "default") return options;
  options.factor = positive(config, group + "factor", config.number(group + "factor"));
  const std::string original = "original_max_position_embeddings";
  options.original_positions =
      config.size(config.has(original) ? original : group + original, options.positions);
  options.low_frequency_factor = config.number(group + "low_freq_factor", 1);
  options.high_frequency_factor = config.number(group + "high_freq_factor", 4);
  if (options.type == "llama3" && options.high_frequency_factor <= options.low_frequency_factor) {
    refuse(config, group + "high_freq_factor", "must be above low_freq_factor");
  }
  if (options.type == "dynamic" && head_width <= 2) refuse(config, "head_dim", "must be above 2");
  if (options.type == "yarn") {
    options.attention_factor = yarn_attention(config, group, options.factor);
    options.beta_fast = positive(config, "beta_fast", config.number(group + "beta_fast", 32));
    options.beta_slow = positive(config, "beta_slow", config.number(group + "beta_slow", 1));
    options.truncate = config.flag(group + "truncate", true);
  }
  return options;
}

at::Tensor rotary_frequencies(const RotaryOptions& options, int64_t length) {
  if (options.type == "llama3") return llama3_frequencies(options);
  if (options.type == "yarn") return yarn_frequencies(options);
  double theta = options.theta;
  if (options.type == "dynamic") {
    const auto usual = static_cast<double>(options.positions);
    const double stretch = options.factor * std::max(static_cast<double>(length), usual) / usual;
    const auto width = static_cast<double>(options.width);
    theta *= std::pow(stretch - (options.factor - 1), width / (width - 2));
  }
  const at::Tensor frequencies = powers(options, theta).reciprocal();
  return options.type == "linear" ? frequencies / options.factor : frequencies;
}

Rotary::Rotary(RotaryOptions options) : options_(std::move(options)) {}

std::pair<at::Tensor, at::Tensor> Rotary::table(int64_t length, c10::Device device) {
  const std::lock_guard lock(mutex_);
  make_table(length, device);
  // A longer text replaces it, and a graph that was recorded goes on reading it.
  keep_for_replays(cosine_);
  keep_for_replays(sine_);
  return {cosine_, sine_};
}

void Rotary::make_table(int64_t length, c10::Device device) {
  const bool fits = cosine_.defined() && cosine_.size(0) >= length && cosine_.device() == device;
  const int64_t counted = std::max(length, options_.positions);
  if (fits && (options_.type != "dynamic" || counted == length_)) return;
  const int64_t known = cosine_.defined() ? cosine_.size(0) : kFirstPositions;
  const int64_t count = std::max(known >= length ? known : 2 * known, length);
  const at::InferenceMode no_inference(false);
  const at::Tensor places = at::arange(count, at::kFloat);
  const at::Tensor angles = at::outer(places, rotary_frequencies(options_, length));
  const auto stored = [&](const at::Tensor& values) {
    return (values * options_.attention_factor).to(device);
  };
  cosine_ = stored(angles.cos());
  sine_ = stored(angles.sin());
  length_ = counted;
}

std::pair<at::Tensor, at::Tensor> Rotary::at(int64_t first, int64_t count, c10::Device device) {
  const auto [cosine, sine] = table(first + count, device);
  return {cosine.slice(0, first, first + count), sine.slice(0, first, first + count)};
}

at::Tensor Rotary::frequencies(int64_t length, c10::Device device) {
  const std::lock_guard lock(mutex_);
  const bool fits = frequencies_.defined() && frequencies_.device() == device;
  if (!fits || options_.type == "dynamic") {
    const at::InferenceMode no_inference(false);
    frequencies_ = rotary_frequencies(options_, length).to(device);
  }
  keep_for_replays(frequencies_);
  return frequencies_;
}

std::pair<at::Tensor, at::Tensor> Rotary::at(const at::Tensor& positions) {
  const int64_t length =
      options_.type == "dynamic" ? positions.max().item<int64_t>() + 1 : options_.positions;
  const at::Tensor angles =
      at::outer(positions.to(at::kFloat).flatten(), frequencies(length, positions.device()));
  return {angles.cos() * options_.attention_factor, angles.sin() * options_.attention_factor};
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine) {
  if (cosine.size(0) == x.size(1)) return ops::rotary_embedding(x, cosine, sine);
  return ops::rotary_embedding(x.flatten(0, 1), cosine, sine).view(x.sizes());
}

}  // namespace accelerate::transformers

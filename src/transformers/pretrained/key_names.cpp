#include "transformers/pretrained/key_names.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

namespace accelerate::transformers {
namespace {

void replace_end(std::string& name, std::string_view end, std::string_view by) {
  if (name.ends_with(end)) name.replace(name.size() - end.size(), end.size(), by);
}

// As the first BERT checkpoints had them.
std::string modern_name(std::string name) {
  replace_end(name, "LayerNorm.gamma", "LayerNorm.weight");
  replace_end(name, "LayerNorm.beta", "LayerNorm.bias");
  return name;
}

// Files of earlier versions hold masks and positions that are computed today.
bool is_old_buffer(std::string_view name) {
  static constexpr std::array<std::string_view, 6> kEnds{
      "position_ids",
      "rotary_emb.inv_freq",
      "attn.bias",
      "attn.masked_bias",
      "crossattention.bias",
      "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"};
  return std::ranges::any_of(kEnds, [&](std::string_view end) {
    if (!name.ends_with(end)) return false;
    return name.size() == end.size() || name[name.size() - end.size() - 1] == '.';
  });
}

class Names {
 public:
  Names(const PretrainedModel& model, const ModelStateDict& state)
      : prefix_(model.base_model_prefix() + ".") {
    for (const auto& item : state) own_.insert(item.key());
    for (auto& [other, name] : model.tied_weights()) tied_.emplace(other, name);
  }

  struct Place {
    std::string name{};
    std::string other{};  // the name that is tied to it, if that is what is in the files
  };
  // An empty name: the model has no place for it.
  Place place_of(const std::string& stored) const {
    const std::string name = modern_name(stored);
    if (prefix_.size() > 1) {
      if (name.starts_with(prefix_)) {
        if (Place place = known(name.substr(prefix_.size())); !place.name.empty()) return place;
      } else if (Place place = known(prefix_ + name); !place.name.empty()) {
        return place;
      }
    }
    return known(name);
  }

 private:
  Place known(const std::string& name) const {
    if (own_.contains(name)) return {.name = name};
    const auto tied = tied_.find(name);
    return tied == tied_.end() ? Place{} : Place{.name = tied->second, .other = name};
  }

  std::string prefix_;
  std::set<std::string> own_;
  std::map<std::string, std::string> tied_;
};

struct Offer {
  const StoredWeight* tensor = nullptr;
  std::string other{};
  // Less is better: the tensor itself before another name of it, and a name that is exact before
  // one that is not.
  int distance = 0;
};

}  // namespace

KeyPlan plan_keys(const PretrainedModel& model, const ModelStateDict& state,
                  const std::vector<StoredWeight>& stored) {
  KeyPlan plan;
  const Names names(model, state);
  std::map<std::string, Offer> offers;  // by the name in the model
  for (const StoredWeight& tensor : stored) {
    const Names::Place place = names.place_of(tensor.name);
    if (place.name.empty()) {
      if (!tensor.is_alias && !is_old_buffer(tensor.name)) plan.unexpected.push_back(tensor.name);
      continue;
    }
    Offer worse{.tensor = &tensor, .other = place.other};
    worse.distance = (place.other.empty() ? 0 : 4) + (tensor.is_alias ? 2 : 0) +
                     (tensor.name == place.name ? 0 : 1);
    const auto [best, is_first] = offers.emplace(place.name, worse);
    if (is_first) continue;
    if (worse.distance < best->second.distance) std::swap(worse, best->second);
    if (worse.tensor->is_alias) continue;
    if (worse.other == best->second.other) {
      plan.unexpected.push_back(worse.tensor->name);
    } else {
      plan.both_of_tied.push_back({.other_in_files = worse.tensor->name,
                                   .own_in_files = best->second.tensor->name,
                                   .other = worse.other});
    }
  }
  for (const auto& item : state) {
    const auto offer = offers.find(item.key());
    if (offer == offers.end()) {
      plan.missing.push_back(item.key());
      continue;
    }
    const StoredWeight& tensor = *offer->second.tensor;
    if (item.value().sizes() == at::IntArrayRef(tensor.shape)) {
      plan.names.emplace(tensor.name, item.key());
    } else {
      plan.mismatched.push_back(
          {.name = item.key(), .in_files = tensor.shape, .in_model = item.value().sizes().vec()});
    }
  }
  return plan;
}

}  // namespace accelerate::transformers

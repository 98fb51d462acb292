#include "estimate/architectures.h"

#include <algorithm>
#include <map>

#include "base/message_text.h"
#include "base/word_list.h"

namespace accelerate::estimate {
namespace {

using Describe = ModelLayout (*)(const ConfigValues&);

const std::map<std::string, Describe>& describers() {
  static const std::map<std::string, Describe> table = {
      {"bert", bert_architecture},       {"distilbert", distilbert_architecture},
      {"gpt2", gpt2_architecture},       {"llama", llama_architecture},
      {"roberta", roberta_architecture}, {"t5", t5_architecture},
  };
  return table;
}

std::vector<std::string> known_types() {
  std::vector<std::string> types;
  for (const auto& [type, describer] : describers()) types.push_back(type);
  return types;
}

}  // namespace

std::string known_class(const ConfigValues& config, const std::vector<std::string>& known) {
  const std::string name = config.architecture();
  if (name.empty()) return known.front();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    config.refuse("the class " + in_quotes(name) + " is not known",
                  "known: " + joined(known) + "; for any other model name its .safetensors files");
  }
  return name;
}

ModelLayout architecture_of(const ConfigValues& config) {
  const std::string type = config.text("model_type", "");
  const auto found = describers().find(type);
  if (found == describers().end()) {
    config.refuse(
        type.empty() ? "the file has no model_type"
                     : "the model_type " + in_quotes(type) + " is not known",
        "known: " + joined(known_types()) + "; for any other model name its .safetensors files");
  }
  return found->second(config);
}

}  // namespace accelerate::estimate

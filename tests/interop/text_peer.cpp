// The C++ side of text_interop.py: tokenizers of checkpoints, collators and sentence embeddings.
//
//   text_peer encode FOLDER REQUEST OUT   the texts of the file REQUEST as a batch, and back
//   text_peer collate FOLDER REQUEST OUT  the same texts through a collator, with labels 0, 1, ...
//   text_peer save FOLDER OUT             loads the tokenizer and saves it
//   text_peer embed FOLDER REQUEST OUT    the mean of the last hidden states, normalised
//
// REQUEST is a list of {"texts": [...], "pairs": [...] or null, "max_length": n or null,
// "multiple": n}; OUT is a JSON file with as many answers, but for save. Prints the message of an
// error of the library and exits with 3.
#include <accelerate/errors.h>
#include <accelerate/transformers.h>
#include <torch/torch.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace accelerate::test {
namespace {

using nlohmann::json;
using transformers::AutoModel;
using transformers::AutoTokenizer;
using transformers::DataCollatorWithPadding;
using transformers::ModelInputs;
using transformers::PretrainedTokenizer;
using transformers::TextOptions;
using transformers::TextSample;

constexpr int kUsage = 2;
constexpr int kRefused = 3;

struct Request {
  explicit Request(const json& request) {
    texts = request["texts"].get<std::vector<std::string>>();
    if (!request["pairs"].is_null()) pairs = request["pairs"].get<std::vector<std::string>>();
    for (size_t i = 0; i < texts.size(); ++i) {
      batch.push_back(pairs.empty() ? TextPair(texts[i]) : TextPair(texts[i], pairs[i]));
    }
    options.truncation = !request["max_length"].is_null();
    if (options.truncation) options.max_length = request["max_length"].get<int64_t>();
    options.pad_to_multiple_of = request["multiple"].get<int64_t>();
  }
  std::vector<std::string> texts{}, pairs{};
  std::vector<TextPair> batch{};
  TextOptions options{};
};

json to_json(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  if (tensor.dim() == 0) {
    return at::isFloatingType(tensor.scalar_type()) ? json(tensor.item<double>())
                                                    : json(tensor.item<int64_t>());
  }
  json list = json::array();
  for (int64_t i = 0; i < tensor.size(0); ++i) list.push_back(to_json(tensor[i]));
  return list;
}

json to_json(const ModelInputs& inputs) {
  return {{"input_ids", to_json(inputs.input_ids)},
          {"attention_mask", to_json(inputs.attention_mask)},
          {"token_type_ids", to_json(inputs.token_type_ids)},
          {"labels", to_json(inputs.labels)}};
}

json to_json(std::optional<int64_t> value) { return value ? json(*value) : json(nullptr); }

json encode(const PretrainedTokenizer& tokenizer, const Request& request) {
  const ModelInputs inputs = tokenizer(request.batch, request.options);
  json result = to_json(inputs);
  result["decoded"] = tokenizer.batch_decode(inputs.input_ids);
  result["skipped"] = tokenizer.batch_decode(inputs.input_ids, {.skip_special_tokens = true});
  result["pad_token_id"] = to_json(tokenizer.pad_token_id());
  result["eos_token_id"] = to_json(tokenizer.eos_token_id());
  result["mask_token_id"] = to_json(tokenizer.mask_token_id());
  result["all_special_ids"] = tokenizer.special_token_ids();
  result["model_max_length"] = to_json(tokenizer.model_max_length());
  result["padding_side"] = tokenizer.padding_side() == TokenSide::kLeft ? "left" : "right";
  result["size"] = tokenizer.size();
  return result;
}

json collate(const PretrainedTokenizer& tokenizer, const Request& request) {
  std::vector<TextSample> samples;
  for (const TextPair& text : request.batch) {
    samples.emplace_back(tokenizer.encode(text, {.truncation = request.options.truncation,
                                                 .max_length = request.options.max_length}),
                         static_cast<int64_t>(samples.size()));
  }
  return to_json(DataCollatorWithPadding(
      tokenizer, {.pad_to_multiple_of = request.options.pad_to_multiple_of})(samples));
}

json embed(const PretrainedTokenizer& tokenizer, const char* folder, const Request& request) {
  torch::NoGradGuard no_grad;
  const ModelInputs inputs = tokenizer(request.batch, request.options);
  const at::Tensor states = AutoModel::from_pretrained(folder)->forward(inputs).last_hidden_state;
  const at::Tensor mask = inputs.attention_mask.unsqueeze(-1).to(states.scalar_type());
  return to_json(torch::nn::functional::normalize((states * mask).sum(1) / mask.sum(1)));
}

int run(int argc, char** argv) {
  const std::string command = argc > 2 ? argv[1] : "";
  if (command == "save" && argc == 4) {
    AutoTokenizer::from_pretrained(argv[2]).save_pretrained(argv[3]);
    return 0;
  }
  if (argc != 5) return kUsage;
  const PretrainedTokenizer tokenizer = AutoTokenizer::from_pretrained(argv[2]);
  std::ifstream stream(argv[3]);
  json result = json::array();
  for (const json& one : json::parse(stream)) {
    const Request request(one);
    if (command == "encode") {
      result.push_back(encode(tokenizer, request));
    } else if (command == "collate") {
      result.push_back(collate(tokenizer, request));
    } else if (command == "embed") {
      result.push_back(embed(tokenizer, argv[2], request));
    } else {
      return kUsage;
    }
  }
  std::ofstream(argv[4]) << result.dump();
  return 0;
}

}  // namespace
}  // namespace accelerate::test

int main(int argc, char** argv) {
  try {
    return accelerate::test::run(argc, argv);
  } catch (const accelerate::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return accelerate::test::kRefused;
  }
}

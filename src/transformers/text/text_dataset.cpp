#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

#include "accelerate/errors.h"
#include "accelerate/transformers/collator.h"

namespace accelerate::transformers {

struct TextDataset::Texts {
  Texts(PretrainedTokenizer tokenizer, std::vector<TextLabel> labels, TextOptions options)
      : tokenizer(std::move(tokenizer)), labels(std::move(labels)), options(options) {}

  void check() const {
    if (labels.empty() || labels.size() == texts.size()) return;
    throw UsageError({.what = std::to_string(texts.size()) + " texts have " +
                              std::to_string(labels.size()) + " labels",
                      .where = "TextDataset"});
  }

  PretrainedTokenizer tokenizer;
  std::vector<std::string> texts{};
  std::vector<std::string> pairs{};  // empty, or one for each text
  std::vector<TextLabel> labels;
  TextOptions options;
};

TextDataset::TextDataset(PretrainedTokenizer tokenizer, std::vector<std::string> texts,
                         std::vector<TextLabel> labels, TextOptions options) {
  auto all = std::make_shared<Texts>(std::move(tokenizer), std::move(labels), options);
  all->texts = std::move(texts);
  all->check();
  texts_ = std::move(all);
}

TextDataset::TextDataset(PretrainedTokenizer tokenizer,
                         std::vector<std::pair<std::string, std::string>> pairs,
                         std::vector<TextLabel> labels, TextOptions options) {
  auto all = std::make_shared<Texts>(std::move(tokenizer), std::move(labels), options);
  for (auto& [text, pair] : pairs) {
    all->texts.push_back(std::move(text));
    all->pairs.push_back(std::move(pair));
  }
  all->check();
  texts_ = std::move(all);
}

size_t TextDataset::size() const { return texts_->texts.size(); }

TextSample TextDataset::get(size_t index, at::Generator& random) const {
  const Texts& all = *texts_;
  if (index >= all.texts.size()) {
    throw UsageError({.what = "there is no text " + std::to_string(index) + " of " +
                              std::to_string(all.texts.size()),
                      .where = "TextDataset"});
  }
  const TextPair text =
      all.pairs.empty() ? TextPair(all.texts[index]) : TextPair(all.texts[index], all.pairs[index]);
  TextSample sample(all.tokenizer.encode(text, all.options),
                    all.labels.empty() ? TextLabel{} : all.labels[index]);
  const std::lock_guard lock(random.mutex());
  sample.random = at::check_generator<at::CPUGeneratorImpl>(random)->random64();
  return sample;
}

}  // namespace accelerate::transformers

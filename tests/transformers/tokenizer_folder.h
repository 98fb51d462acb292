// A tokenizer for tests, as a folder: one token a word.
#pragma once

#include <torch/torch.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "accelerate/transformers/pretrained_tokenizer.h"

namespace accelerate::test {

// Rows of equal length as a tensor.
inline at::Tensor rows(const std::vector<std::vector<int64_t>>& lists) {
  std::vector<at::Tensor> tensors;
  for (const auto& list : lists) tensors.push_back(torch::tensor(list, torch::kInt64));
  return torch::stack(tensors);
}

// An empty folder that goes away with the object.
class ScratchFolder {
 public:
  ScratchFolder() {
    static std::atomic<int> number{0};
    path_ = std::filesystem::temp_directory_path() /
            ("accelerate_text_" + std::to_string(getpid()) + '_' + std::to_string(number++));
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const nlohmann::json& json) const {
    std::ofstream(path_ / name) << json.dump();
  }

 private:
  std::filesystem::path path_;
};

// [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, then "one" 5 to "nine" 13; [CLS] text [SEP] pair
// [SEP].
inline nlohmann::json words_json() {
  using nlohmann::json;
  json vocabulary;
  int64_t id = 0;
  for (const char* word : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two", "three",
                           "four", "five", "six", "seven", "eight", "nine"}) {
    vocabulary[word] = id++;
  }
  json added = json::array();
  for (const char* word : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    added.push_back({{"id", vocabulary[word]},
                     {"content", word},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
          {"post_processor",
           {{"type", "BertProcessing"}, {"sep", {"[SEP]", 3}}, {"cls", {"[CLS]", 2}}}},
          {"model", {{"type", "WordLevel"}, {"unk_token", "[UNK]"}, {"vocab", vocabulary}}}};
}

// The tokenizer of words_json() with this tokenizer_config.json.
inline transformers::PretrainedTokenizer words_tokenizer(
    const nlohmann::json& config = {{"tokenizer_class", "BertTokenizer"}}) {
  const ScratchFolder folder;
  folder.write("tokenizer.json", words_json());
  folder.write("tokenizer_config.json", config);
  return transformers::PretrainedTokenizer::from_pretrained(folder.path().string());
}

}  // namespace accelerate::test

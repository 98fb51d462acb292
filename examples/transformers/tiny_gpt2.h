// A folder for a GPT-2 that never learned anything, with bytes for tokens: to try a program out
// where no checkpoint is at hand.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

// Gone with the object.
class TinyGpt2Folder {
 public:
  TinyGpt2Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tiny_gpt2.XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    path_ = name;
    write("config.json", R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
      "vocab_size": 257, "n_embd": 32, "n_head": 2, "n_layer": 2, "n_positions": 1024,
      "bos_token_id": 256, "eos_token_id": 256})");
    write("tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer"})");
    const std::string bytes = R"({"type": "ByteLevel", "add_prefix_space": false,
      "trim_offsets": true, "use_regex": true})";
    write("tokenizer.json", R"({"version": "1.0", "added_tokens": [{"id": 256,
      "content": "<|endoftext|>", "single_word": false, "lstrip": false, "rstrip": false,
      "normalized": false, "special": true}], "pre_tokenizer": )" +
                                bytes + R"(, "decoder": )" + bytes +
                                R"(, "model": {"type": "BPE", "merges": [], "vocab": )" +
                                vocabulary() + "}}");
  }
  TinyGpt2Folder(const TinyGpt2Folder&) = delete;
  TinyGpt2Folder& operator=(const TinyGpt2Folder&) = delete;
  ~TinyGpt2Folder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }

  std::string path() const { return path_.string(); }

 private:
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
  }

  // GPT-2 writes bytes that cannot be seen as the letters from U+0100 on.
  static std::string vocabulary() {
    std::string text = "{";
    int hidden = 0;
    for (int byte = 0; byte < 256; ++byte) {
      const bool is_visible = (byte >= 0x21 && byte < 0x7f) || (byte >= 0xa1 && byte != 0xad);
      const int letter = is_visible ? byte : 0x100 + hidden++;
      constexpr const char* kDigits = "0123456789abcdef";
      text += (byte == 0 ? "\"\\u" : ", \"\\u");
      for (int shift = 12; shift >= 0; shift -= 4) text += kDigits[(letter >> shift) & 15];
      text += "\": " + std::to_string(byte);
    }
    return text + "}";
  }

  std::filesystem::path path_;
};

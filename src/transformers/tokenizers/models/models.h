// What makes tokens of a piece of text: the "model" of a tokenizer.json.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transformers/tokenizers/models/word_cache.h"

namespace accelerate::tokenizers {

// What a model needs while it works, kept from one piece to the next. For one thread at a time and
// for one model.
struct Workspace {
  struct Symbol {
    uint32_t id = 0;
    uint32_t size = 0;  // bytes; 0: it was merged into another
    int32_t previous = -1;
    int32_t next = -1;
  };
  struct BestPath {
    double score = 0;
    uint32_t begin = 0;
    uint32_t id = 0;
    bool reached = false;
  };

  WordCache cache{};
  std::vector<Symbol> symbols{};
  std::vector<uint32_t> ranks{};
  std::vector<uint64_t> queue{};
  std::vector<BestPath> paths{};
  std::string text{};

  // Gives back what one long piece has needed: the next ones are likely to be short.
  void forget_large() {
    constexpr size_t kLarge = 1 << 16;
    if (symbols.capacity() > kLarge) symbols = {};
    if (ranks.capacity() > kLarge) ranks = {};
    if (queue.capacity() > kLarge) queue = {};
    if (paths.capacity() > kLarge) paths = {};
    if (text.capacity() > kLarge) text = {};
  }
};

// Immutable once it is set up; safe from any thread, each with a workspace of its own.
class Model {
 public:
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  virtual ~Model() = default;

  // Appends the tokens of `text`, which is not empty. Throws DataError for a text that the
  // vocabulary has no token for.
  virtual void tokenize(std::string_view text, Workspace& workspace,
                        std::vector<Piece>& pieces) const = 0;

  virtual std::optional<uint32_t> find(std::string_view token) const = 0;
  virtual std::optional<std::string_view> token(uint32_t id) const = 0;
  virtual size_t size() const = 0;

  // From now on pieces are plain bytes that the vocabulary writes as characters (byte_level.h), if
  // the model can work so. Called before the first tokenize().
  virtual bool take_bytes() { return false; }
};

// Throws DataError that names `where` for a type that is not known or fields that do not fit.
std::unique_ptr<Model> make_model(const nlohmann::json& json, const std::string& where);

std::unique_ptr<Model> make_bpe(const nlohmann::json& json, const std::string& where);
std::unique_ptr<Model> make_unigram(const nlohmann::json& json, const std::string& where);
std::unique_ptr<Model> make_word_piece(const nlohmann::json& json, const std::string& where);
std::unique_ptr<Model> make_word_level(const nlohmann::json& json, const std::string& where);

}  // namespace accelerate::tokenizers

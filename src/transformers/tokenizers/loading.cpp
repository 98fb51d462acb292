#include "transformers/tokenizers/loading.h"

#include <fstream>
#include <sstream>
#include <system_error>

#include "accelerate/errors.h"
#include "base/lfs_pointer.h"
#include "transformers/tokenizers/json/json_fields.h"
#include "transformers/tokenizers/json/json_reading.h"
#include "transformers/tokenizers/parts.h"

namespace accelerate {
namespace tokenizers {
namespace {

TokenSide read_side(const JsonFields& fields, const std::string& missing) {
  const std::string side = fields.text_or("direction", missing);
  if (side != "Left" && side != "Right") fields.refuse("direction", "Left or Right");
  return side == "Left" ? TokenSide::kLeft : TokenSide::kRight;
}

}  // namespace

std::string read_text_file(const std::filesystem::path& file) {
  std::error_code error;
  // What is not a file, such as a pipe, might never end.
  const bool regular = std::filesystem::is_regular_file(file, error);
  std::ifstream stream;
  if (regular) stream.open(file, std::ios::binary);
  if (!regular) stream.setstate(std::ios::failbit);
  std::ostringstream text;
  if (stream && stream.peek() != std::ifstream::traits_type::eof()) text << stream.rdbuf();
  if (!stream || !text) {
    throw DataError({.what = "the file of a tokenizer cannot be read",
                     .where = file.string(),
                     .hint = "a model's folder has a tokenizer.json, or vocab.txt, or vocab.json "
                             "and merges.txt"});
  }
  std::string all = text.str();
  if (is_lfs_pointer(all)) {
    throw DataError({.what = kLfsPointer, .where = file.string(), .hint = kLfsHint});
  }
  return all;
}

std::optional<TruncationOptions> read_truncation(const nlohmann::json& json,
                                                 const std::string& where) {
  if (json.is_null()) return std::nullopt;
  const JsonFields fields(json, where);
  TruncationOptions options{.max_length = fields.count("max_length"),
                            .stride = fields.count("stride"),
                            .direction = read_side(fields, "Right")};
  const std::string strategy = fields.text("strategy");
  if (strategy == "OnlyFirst") {
    options.strategy = TruncationStrategy::kOnlyFirst;
  } else if (strategy == "OnlySecond") {
    options.strategy = TruncationStrategy::kOnlySecond;
  } else if (strategy != "LongestFirst") {
    fields.refuse("strategy", "LongestFirst, OnlyFirst or OnlySecond");
  }
  return options;
}

std::optional<PaddingOptions> read_padding(const nlohmann::json& json, const std::string& where) {
  if (json.is_null()) return std::nullopt;
  const JsonFields fields(json, where);
  PaddingOptions options{.direction = read_side(fields, ""),
                         .pad_to_multiple_of = fields.count_or("pad_to_multiple_of", 0),
                         .pad_id = fields.id("pad_id"),
                         .pad_type_id = fields.id("pad_type_id"),
                         .pad_token = fields.text("pad_token")};
  const nlohmann::json& strategy = fields.at("strategy");
  if (strategy.is_object()) {
    options.length = JsonFields(strategy, fields.place("strategy")).count("Fixed");
  } else if (strategy != "BatchLongest") {
    fields.refuse("strategy", "BatchLongest or Fixed");
  }
  return options;
}

std::vector<AddedToken> read_added_tokens(const nlohmann::json& json, const std::string& where) {
  std::vector<AddedToken> tokens;
  if (!json.is_array()) throw DataError({.what = "expected a list", .where = where});
  for (const nlohmann::json& item : json) {
    const JsonFields fields(item, where + '[' + std::to_string(tokens.size()) + ']');
    static_cast<void>(fields.id("id"));
    tokens.push_back({.content = fields.text("content"),
                      .single_word = fields.flag("single_word"),
                      .lstrip = fields.flag("lstrip"),
                      .rstrip = fields.flag("rstrip"),
                      .normalized = fields.flag("normalized"),
                      .special = fields.flag("special")});
  }
  return tokens;
}

}  // namespace tokenizers

// Has access to what a tokenizer is made of.
struct Tokenizer::Loader {
  static Tokenizer load(const nlohmann::json& json, const std::string& name);
};

Tokenizer Tokenizer::Loader::load(const nlohmann::json& json, const std::string& name) {
  using namespace tokenizers;  // NOLINT(google-build-using-namespace): all of it is used
  const JsonFields fields(json, name);
  const auto place = [&](const char* part) { return name + ": " + part; };
  if (fields.text_or("version", "1.0") != "1.0") fields.refuse("version", "version 1.0");
  auto parts = std::make_shared<Parts>();
  if (const auto* part = fields.find("normalizer")) {
    parts->normalizer = make_normalizer(*part, place("normalizer"));
  }
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  if (const auto* part = fields.find("pre_tokenizer")) {
    pre_tokenizer = make_pre_tokenizer(*part, place("pre_tokenizer"));
  }
  std::unique_ptr<Model> model = make_model(fields.at("model"), place("model"));
  // Bytes need not be written as characters only to be read as bytes by the model.
  if (pre_tokenizer && pre_tokenizer->writes_bytes() && model->take_bytes()) {
    pre_tokenizer->leave_bytes();
  }
  parts->pre_tokenizer = std::move(pre_tokenizer);
  parts->model = std::move(model);
  parts->model_type = JsonFields(fields.at("model"), place("model")).type();
  if (const auto* part = fields.find("post_processor")) {
    parts->processor = make_processor(*part, place("post_processor"));
  }
  if (const auto* part = fields.find("decoder")) {
    parts->decoder = make_decoder(*part, place("decoder"));
  }
  if (const auto* part = fields.find("added_tokens")) {
    parts->added_list = read_added_tokens(*part, place("added_tokens"));
    parts->added.add(parts->added_list, *parts->model, parts->normalizer.get());
  }
  Tokenizer tokenizer(std::move(parts));
  try {
    if (const auto* part = fields.find("truncation")) {
      tokenizer.set_truncation(read_truncation(*part, place("truncation")));
    }
    if (const auto* part = fields.find("padding")) {
      tokenizer.set_padding(read_padding(*part, place("padding")));
    }
  } catch (const UsageError& error) {
    throw DataError({.what = error.message(), .where = place(error.where().c_str())});
  }
  return tokenizer;
}

Tokenizer Tokenizer::from_json(std::string_view json, const std::string& name) {
  return Loader::load(tokenizers::parse_json(json, name), name);
}

Tokenizer Tokenizer::from_file(const std::filesystem::path& file) {
  return from_json(tokenizers::read_text_file(file), file.string());
}

Tokenizer Tokenizer::from_folder(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "tokenizer.json";
  if (std::filesystem::exists(file)) return from_file(file);
  const auto json = tokenizers::json_of_vocabulary_files(folder);
  // Says what is missing.
  if (!json) return from_file(file);
  return Loader::load(*json, folder.string());
}

}  // namespace accelerate

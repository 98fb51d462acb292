// Special tokens where a template puts them.
#include <algorithm>
#include <map>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "transformers/tokenizers/json/json_fields.h"
#include "transformers/tokenizers/processors/processors.h"
#include "transformers/tokenizers/text/encodings.h"

namespace accelerate::tokenizers {
namespace {

struct TemplateTokens {
  std::vector<int64_t> ids{};
  std::vector<std::string> tokens{};
};

// One place of a template: a text (number 0 or 1), or special tokens by their name.
struct Place {
  std::optional<size_t> text{};
  std::string special{};
  int64_t type_id = 0;
};

constexpr size_t kMostPlaces = 1000;

std::vector<Place> read_places(const JsonFields& fields, std::string_view name,
                               const std::map<std::string, TemplateTokens>& special) {
  std::vector<Place> places;
  for (const nlohmann::json& item : fields.list(name)) {
    const std::string where = fields.place(name) + '[' + std::to_string(places.size()) + ']';
    const JsonFields place(item, where);
    if (const nlohmann::json* text = place.find("Sequence"); text != nullptr) {
      const JsonFields details(*text, where);
      const std::string id = details.text("id");
      if (id != "A" && id != "B") details.refuse("id", "A or B");
      places.push_back({.text = id == "A" ? 0 : 1, .type_id = details.id("type_id")});
      continue;
    }
    const JsonFields details(place.at("SpecialToken"), where);
    places.push_back({.special = details.text("id"), .type_id = details.id("type_id")});
    if (!special.contains(places.back().special)) {
      throw DataError({.what = "the template needs the special token " +
                               in_quotes(places.back().special) +
                               ", which is not in its list of special tokens",
                       .where = where});
    }
  }
  if (places.size() > kMostPlaces) fields.refuse(name, "at most 1000 places");
  return places;
}

std::map<std::string, TemplateTokens> read_special(const JsonFields& fields) {
  std::map<std::string, TemplateTokens> special;
  const nlohmann::json& all = fields.at("special_tokens");
  if (!all.is_object()) fields.refuse("special_tokens", "an object");
  for (const auto& [name, json] : all.items()) {
    const JsonFields details(json, fields.place("special_tokens"));
    TemplateTokens tokens;
    for (const nlohmann::json& id : details.list("ids")) {
      tokens.ids.push_back(id_of(id, details.place("ids")));
    }
    for (const nlohmann::json& token : details.list("tokens")) {
      tokens.tokens.push_back(text_of(token, details.place("tokens")));
    }
    if (tokens.ids.size() != tokens.tokens.size()) {
      details.refuse("ids", "as many ids as tokens");
    }
    special[name] = std::move(tokens);
  }
  return special;
}

class TemplateProcessing final : public Processor {
 public:
  explicit TemplateProcessing(const JsonFields& fields)
      : special_(read_special(fields)),
        single_(read_places(fields, "single", special_)),
        pair_(read_places(fields, "pair", special_)) {}

  int64_t added_tokens(bool pair) const override {
    int64_t sum = 0;
    for (const Place& place : pair ? pair_ : single_) {
      if (!place.text) sum += static_cast<int64_t>(special_.at(place.special).ids.size());
    }
    return sum;
  }

  std::vector<Encoding> process(std::vector<Encoding> encodings,
                                bool add_special_tokens) const override {
    if (encodings.empty() || encodings.size() > 2) {
      throw DataError(
          {.what = "a template has one text or two, not " + std::to_string(encodings.size()),
           .where = "post_processor"});
    }
    const std::vector<Place>& places = encodings.size() == 2 ? pair_ : single_;
    std::vector<Encoding> result;
    result.reserve(places.size());
    for (auto place = places.begin(); place != places.end(); ++place) {
      if (place->text) {
        const bool again = std::any_of(
            place + 1, places.end(), [&](const Place& later) { return later.text == place->text; });
        result.push_back(text_at(*place, encodings, again));
      } else if (add_special_tokens) {
        result.push_back(special_at(*place));
      }
    }
    return result;
  }

 private:
  // A copy of the text if the template names it `again`.
  static Encoding text_at(const Place& place, std::vector<Encoding>& encodings, bool again) {
    if (*place.text >= encodings.size()) {
      throw DataError(
          {.what = "the template of a single text names its pair", .where = "post_processor"});
    }
    Encoding& text = encodings[*place.text];
    Encoding encoding = again ? text : std::move(text);
    std::ranges::fill(encoding.type_ids, place.type_id);
    std::ranges::fill(encoding.sequence_ids, static_cast<int64_t>(*place.text));
    return encoding;
  }

  Encoding special_at(const Place& place) const {
    const TemplateTokens& special = special_.at(place.special);
    Encoding result;
    for (size_t i = 0; i < special.ids.size(); ++i) {
      append_special(result, special.tokens[i], special.ids[i], place.type_id);
    }
    return result;
  }

  std::map<std::string, TemplateTokens> special_;
  std::vector<Place> single_;
  std::vector<Place> pair_;
};

}  // namespace

std::unique_ptr<const Processor> make_template_processor(const nlohmann::json& json,
                                                         const std::string& where) {
  return std::make_unique<TemplateProcessing>(JsonFields(json, where));
}

}  // namespace accelerate::tokenizers

// Cuts where the script changes: Latin from Greek, letters from punctuation.
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "transformers/tokenizers/pattern/pattern.h"
#include "transformers/tokenizers/pre_tokenizers/pre_tokenizers.h"

namespace accelerate::tokenizers {
namespace {

// What goes on with any script: spaces, and characters that belong to none.
constexpr std::string_view kAny = R"(\x{20}\p{Zzzz})";
// One script for what Japanese is written in, with the mark of a long vowel, which Unicode counts
// as common.
constexpr std::string_view kJapanese = R"(\p{Hani}\p{Hira}\p{Kana}\x{30fc})";
// Those of Unicode 14, the most frequent first.
constexpr std::array<std::string_view, 157> kScripts{
    "Latn", "Cyrl", "Arab", "Hang", "Grek", "Hebr", "Deva", "Thai", "Beng", "Taml", "Telu", "Gujr",
    "Guru", "Knda", "Mlym", "Orya", "Sinh", "Armn", "Geor", "Ethi", "Khmr", "Laoo", "Mymr", "Tibt",
    "Mong", "Zinh", "Adlm", "Aghb", "Ahom", "Armi", "Avst", "Bali", "Bamu", "Bass", "Batk", "Bhks",
    "Bopo", "Brah", "Brai", "Bugi", "Buhd", "Cakm", "Cans", "Cari", "Cham", "Cher", "Chrs", "Copt",
    "Cpmn", "Cprt", "Diak", "Dogr", "Dsrt", "Dupl", "Egyp", "Elba", "Elym", "Glag", "Gong", "Gonm",
    "Goth", "Gran", "Hano", "Hatr", "Hluw", "Hmng", "Hmnp", "Hung", "Ital", "Java", "Kali", "Khar",
    "Khoj", "Kits", "Kthi", "Lana", "Lepc", "Limb", "Lina", "Linb", "Lisu", "Lyci", "Lydi", "Mahj",
    "Maka", "Mand", "Mani", "Marc", "Medf", "Mend", "Merc", "Mero", "Modi", "Mroo", "Mtei", "Mult",
    "Nand", "Narb", "Nbat", "Newa", "Nkoo", "Nshu", "Ogam", "Olck", "Orkh", "Osge", "Osma", "Ougr",
    "Palm", "Pauc", "Perm", "Phag", "Phli", "Phlp", "Phnx", "Plrd", "Prti", "Rjng", "Rohg", "Runr",
    "Samr", "Sarb", "Saur", "Sgnw", "Shaw", "Shrd", "Sidd", "Sind", "Sogd", "Sogo", "Sora", "Soyo",
    "Sund", "Sylo", "Syrc", "Tagb", "Takr", "Tale", "Talu", "Tang", "Tavt", "Tfng", "Tglg", "Thaa",
    "Tirh", "Tnsa", "Toto", "Ugar", "Vaii", "Vith", "Wara", "Wcho", "Xpeo", "Xsux", "Yezi", "Yiii",
    "Zanb"};

// A stretch of one script, with what it carries along.
std::string stretches() {
  const auto stretch = [](std::string_view items) {
    const std::string begin(items);
    return '[' + begin + "][" + begin + std::string(kAny) + "]*";
  };
  std::string pattern = stretch(R"(\p{Latn})");
  pattern += R"(|(?![\x{20}\x{30fc}])\p{Zyyy}(?:(?!\x{30fc})[\p{Zyyy}\p{Zzzz}])*)";
  pattern += '|' + stretch(kJapanese);
  for (size_t i = 1; i < kScripts.size(); ++i) {
    pattern += '|' + stretch(R"(\p{)" + std::string(kScripts[i]) + '}');
  }
  return pattern;
}

class AtScripts final : public PreTokenizer {
 public:
  explicit AtScripts(const std::string& where)
      : pattern_(Pattern::expression(stretches(), where)) {}

  // What comes before the first script of a piece is dropped, as the library that this one follows
  // does.
  void pre_tokenize(Segment& segment) const override {
    std::vector<Span> splits;
    std::vector<Span> found;
    for (const Span split : segment.splits) {
      pattern_.find_all(segment.text.view(split), found);
      for (const Span span : found) {
        splits.push_back({split.begin + span.begin, split.begin + span.end});
      }
    }
    segment.splits = std::move(splits);
  }

 private:
  Pattern pattern_;
};

}  // namespace

std::unique_ptr<PreTokenizer> make_scripts_pre_tokenizer(const std::string& where) {
  return std::make_unique<AtScripts>(where);
}

}  // namespace accelerate::tokenizers

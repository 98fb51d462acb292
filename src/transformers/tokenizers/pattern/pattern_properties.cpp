#include "transformers/tokenizers/pattern/pattern_properties.h"

#include <algorithm>
#include <array>
#include <utility>

namespace accelerate::tokenizers {
namespace {

using Row = std::pair<std::string_view, std::string_view>;

// Long names of general categories, which PCRE2 knows by their letters alone.
constexpr std::array kCategories{
    Row{"letter", "L"},
    Row{"uppercaseletter", "Lu"},
    Row{"lowercaseletter", "Ll"},
    Row{"titlecaseletter", "Lt"},
    Row{"modifierletter", "Lm"},
    Row{"otherletter", "Lo"},
    Row{"mark", "M"},
    Row{"nonspacingmark", "Mn"},
    Row{"spacingmark", "Mc"},
    Row{"enclosingmark", "Me"},
    Row{"number", "N"},
    Row{"decimalnumber", "Nd"},
    Row{"letternumber", "Nl"},
    Row{"othernumber", "No"},
    Row{"punctuation", "P"},
    Row{"connectorpunctuation", "Pc"},
    Row{"dashpunctuation", "Pd"},
    Row{"openpunctuation", "Ps"},
    Row{"closepunctuation", "Pe"},
    Row{"initialpunctuation", "Pi"},
    Row{"finalpunctuation", "Pf"},
    Row{"otherpunctuation", "Po"},
    Row{"symbol", "S"},
    Row{"mathsymbol", "Sm"},
    Row{"currencysymbol", "Sc"},
    Row{"modifiersymbol", "Sk"},
    Row{"othersymbol", "So"},
    Row{"separator", "Z"},
    Row{"spaceseparator", "Zs"},
    Row{"lineseparator", "Zl"},
    Row{"paragraphseparator", "Zp"},
    Row{"other", "C"},
    Row{"control", "Cc"},
    Row{"format", "Cf"},
    Row{"privateuse", "Co"},
    Row{"unassigned", "Cn"},
};
constexpr std::array kPosix{
    Row{"alnum", R"(\p{Alphabetic}\p{Nd})"},
    Row{"alpha", R"(\p{Alphabetic})"},
    Row{"blank", R"(\t\p{Zs})"},
    Row{"cntrl", R"(\p{Cc})"},
    Row{"digit", R"(\p{Nd})"},
    Row{"lower", R"(\p{Lowercase})"},
    Row{"space", kWhitespaceItems},
    Row{"upper", R"(\p{Uppercase})"},
    Row{"word", kWordItems},
    Row{"xdigit", kHexItems},
};
// What is neither a category nor one of these is the name of a script.
constexpr std::array<std::string_view, 13> kBinary{
    "alphabetic", "any",        "ascii",       "emoji",   "extendedpictographic",
    "hexdigit",   "idcontinue", "ideographic", "idstart", "lowercase",
    "math",       "uppercase",  "whitespace"};

std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 0x20) : c;
  }
  return plain;
}

template <typename Table>
std::string_view find_row(const Table& table, std::string_view name) {
  const auto row = std::ranges::find(table, name, &Row::first);
  return row == table.end() ? std::string_view() : row->second;
}

}  // namespace

std::string posix_items(std::string_view name) {
  const std::string plain = plain_name(name);
  if (plain == "punct") return R"(\p{P}\p{S})";
  if (const auto items = find_row(kPosix, plain); !items.empty()) return std::string(items);
  return "[:" + std::string(name) + ":]";
}

std::string property_items(std::string_view name) {
  const std::string plain = plain_name(name);
  if (plain == "punct") return R"(\p{P})";
  if (const auto items = find_row(kPosix, plain); !items.empty()) return std::string(items);
  if (const auto letters = find_row(kCategories, plain); !letters.empty()) {
    return R"(\p{)" + std::string(letters) + '}';
  }
  const bool by_itself = plain.size() <= 2 || std::ranges::find(kBinary, plain) != kBinary.end();
  // Without "sc:" PCRE2 also takes characters that the script shares with others.
  return R"(\p{)" + std::string(by_itself ? "" : "sc:") + std::string(name) + '}';
}

}  // namespace accelerate::tokenizers

#!/usr/bin/env python3
"""Every function, option and enumerator of the public headers is mentioned by a test.

names_without_a_test.txt lists those that are not yet: it may only become shorter. A mention is not a proof that the
behaviour is tested, but a name that no test mentions is certainly not.
"""

import re
import textwrap
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LIST = Path(__file__).with_name("names_without_a_test.txt")

COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
DETAIL = re.compile(r"\bnamespace detail\s*\{")
# Up to the end of its class, by indentation: what is private may hold classes of its own.
PRIVATE = re.compile(r"^( +)(?:private|protected):.*?(?=^\1public:|^(?!\1)\s*\};)", re.S | re.M)
ENUMERATOR = re.compile(r"\b(k[A-Z]\w*)\b\s*[,}=]")
# "type name;", "type name = value;", "type name{};" at the beginning of a line.
MEMBER = re.compile(r"^(?! *(?:using|return|friend|namespace|class|struct|enum)\b)[\w:<>,&*\[\] ]+[ &*>]([a-z]\w*)"
                    r" *(?:=[^;()\n]*|\{[^;\n]*\})?;", re.M)
# "type name(" at the beginning of a line.
FUNCTION = re.compile(r"^(?! *(?:return|using|throw|else|friend)\b) *(?:[\w:<>,&*\[\]]+ +)+[&*]*([a-z]\w*)\(", re.M)


def without_detail(text):
    """The text without what stands in namespace detail."""
    kept, start = "", 0
    while found := DETAIL.search(text, start):
        kept += text[start:found.start()]
        depth, end = 1, found.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        start = end
    return kept + text[start:]


def names_in(header):
    text = COMMENT_OR_TEXT.sub('""', header)
    text = PRIVATE.sub("", without_detail(text))
    names = {name for pattern in (ENUMERATOR, MEMBER, FUNCTION) for name in pattern.findall(text)}
    return {name for name in names if not name.endswith("_") and name not in ("override", "default", "if", "for")}


def public_names():
    headers = sorted((ROOT / "include" / "accelerate").rglob("*.h"))
    return {name for path in headers if path.parent.name != "detail" for name in names_in(path.read_text(encoding="utf-8"))}


def words_of_tests():
    words = set()
    for path in (ROOT / "tests").rglob("*"):
        if path.suffix in (".cpp", ".h", ".py") and path != Path(__file__).resolve():
            words.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    return words


class PublicNames(unittest.TestCase):
    def test_declarations_are_found(self):
        header = textwrap.dedent("""
        namespace accelerate {
        enum class Kind { kOne, kTwo = 3 };
        struct Options {
          int64_t steps = 4;  // not_this
          std::optional<double> rate{};
          Kind kind;
        };
        class Thing {
         public:
          std::vector<int> values() const;
          void set(int value);
         private:
          struct Inner {
            int inside;
          };
          void hidden_too();
          int hidden;
        };
        namespace detail { void inner(); }
        void outer(const Options& options = {});
        }
        """)
        self.assertEqual(names_in(header), {"kOne", "kTwo", "steps", "rate", "kind", "values", "set", "outer"})
        self.assertGreater(len(public_names()), 700)

    def test_tests_mention_every_name_but_those_that_are_listed(self):
        untested = sorted(public_names() - words_of_tests())
        listed = LIST.read_text(encoding="utf-8").split()
        new = sorted(set(untested) - set(listed))
        self.assertEqual(new, [], f"write a test for these, do not add them to {LIST.name}")
        self.assertEqual(sorted(set(listed) - set(untested)), [], f"take these out of {LIST.name}")


if __name__ == "__main__":
    unittest.main()

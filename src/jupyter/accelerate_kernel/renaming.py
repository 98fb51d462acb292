"""Names that a cell declares again. Standard library only.

clang-repl refuses a second declaration of a name, as C++ does. In a notebook cells are changed and run again, so from
the cell on that declares a name again the name is given a prefix: `x` becomes `again_3_x`. What was compiled before goes on
with the old one.
"""

import re

from cell import code_tokens, without_colours

_PREFIX = re.compile(r"\bagain_\d+_(?=[A-Za-z_])")
_NAMED = re.compile(
    r"error: (?:redefinition of|redeclaration of|template argument differs in template redefinition of"
    r"|conflicting types for)[^']*'(?:\w+::)?(\w+)'"
)
_UNNAMED = re.compile(
    r":(\d+):(\d+): error: (?:functions that differ only in their return type|type alias redefinition|typedef redefinition"
    r"|requires clause differs|exception specification in declaration)"
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_TYPE_WORDS = ("struct", "class", "union", "enum")


def _numbered_lines(code):
    """Lines with the numbers that #line gives them; parts of one line share its number."""
    number = 0
    for text in code.split("\n"):
        directive = re.match(r"#line (\d+) ", text)
        number = int(directive[1]) - 1 if directive else number + 1
        if not directive:
            yield number, text


def names_declared_again(diagnostics, code):
    """Names, without prefixes, for whose second declaration `code` was refused."""
    said = without_colours(diagnostics)
    names = {_PREFIX.sub("", name) for name in _NAMED.findall(said)}
    lines = list(_numbered_lines(code))
    for line, column in _UNNAMED.findall(said):
        for number, text in lines:
            word = _WORD.match(text, int(column) - 1) if number == int(line) else None
            if word:
                names.add(_PREFIX.sub("", word[0]))
    return names


def without_prefixes(text):
    """What a compiler or a program says, with the names that a user has written."""
    return _PREFIX.sub("", text)


def with_prefixes(code, prefixes):
    """`code` with the names in `prefixes`, name to prefix, replaced: not members, nor what is inside another scope."""
    if not prefixes:
        return code
    tokens = list(code_tokens(code))
    kept = _members(tokens)
    pieces, copied = [], 0
    for index, (at, word) in enumerate(tokens):
        if word not in prefixes or _is_qualified(tokens, index) or (index, word) in kept:
            continue
        pieces += [code[copied:at], prefixes[word]]
        copied = at
    return "".join(pieces) + code[copied:]


def _is_qualified(tokens, index):
    """Whether a member of something is meant: after a dot, "->" or "::"."""
    before = "".join(word for _, word in tokens[max(0, index - 2) : index])
    return before.endswith((".", "->", "::"))


def _members(tokens):
    """(index, word) of all words in bodies of types that name members there."""
    kept = set()
    for index, (_, word) in enumerate(tokens):
        if word not in _TYPE_WORDS:
            continue
        begin = _body_of(tokens, index)
        if begin is None:
            continue
        end = _closing(tokens, begin)
        own_name = next((text for _, text in tokens[index + 1 : begin] if text not in _TYPE_WORDS), "")
        names = _declared_in(tokens, begin, end, word == "enum") - {own_name}
        kept.update((at, text) for at, (_, text) in enumerate(tokens[begin:end], begin) if text in names)
    return kept


def _body_of(tokens, index):
    """Where the body of a type begins whose keyword stands at `index`; None where there is none."""
    has_bases = False
    for at in range(index + 1, len(tokens)):
        word = tokens[at][1]
        if word == "{":
            return at
        if word == ";" or (not has_bases and word in (">", "(", ")", "=", ",", "*", "&")):
            return None
        has_bases = has_bases or word == ":"
    return None


def _closing(tokens, begin):
    depth = 0
    for at in range(begin, len(tokens)):
        depth += (tokens[at][1] in ("(", "[", "{")) - (tokens[at][1] in (")", "]", "}"))
        if depth == 0:
            return at
    return len(tokens)


def _declared_in(tokens, begin, end, is_enum):
    names, depth, is_value = set(), 0, False
    for at in range(begin + 1, end):
        word = tokens[at][1]
        is_value = depth == 0 and (word == "=" or (is_value and word not in (";", ",")))
        depth += (word in ("(", "[", "{")) - (word in (")", "]", "}"))
        following = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        if depth == 0 and not is_value and (is_enum or following in (";", "=", "{", "(", "[", ",")) and _WORD.fullmatch(word):
            names.add(word)
    return names

"""What a cell of a notebook is, before a compiler sees it. Standard library only.

clang-repl takes declarations and statements side by side. What it does not know is a last expression whose
value is to be shown, and names that are declared again.
"""

import re
from dataclasses import dataclass, field

# A cell whose rest begins so is no expression.
_NO_EXPRESSION = {
    "break", "case", "catch", "class", "concept", "continue", "default", "do", "else", "enum", "export", "extern", "for",
    "friend", "goto", "if", "inline", "namespace", "private", "protected", "public", "return", "static", "struct",
    "switch", "template", "try", "typedef", "union", "using", "while",
}
_OPENING = "([{"
_CLOSING = ")]}"
_RAW_STRING = re.compile(r'(?:u8|[uUL])?R"([^()\\\s]{0,16})\(')
_WORD = re.compile(r"[A-Za-z_]\w*")
_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*([a-z]*)")
_COMMAND = re.compile(r"[ \t]*%(\w+)[ \t]*(.*)")


class CellError(Exception):
    """The cell cannot be run; the text says why."""


@dataclass
class Cell:
    """Lines keep their numbers: what was taken out of the code left an empty line."""

    code: str
    includes: list = field(default_factory=list)  # whole lines, to be compiled before the code
    commands: list = field(default_factory=list)  # (name, argument) of lines such as "%lib path"

    @property
    def is_empty(self):
        return not self.code.strip()


def _end_of_quoted(text, start, quote):
    """The index behind the literal that begins at `start`; of the line where it is not closed."""
    at = start + 1
    while at < len(text) and text[at] != "\n":
        if text[at] == "\\":
            at += 1
        elif text[at] == quote:
            return at + 1
        at += 1
    return min(at, len(text))


def _skip(text, at):
    """The index behind a comment, a literal or a directive that begins at `at`; `at` itself if none does."""
    if text.startswith("//", at):
        end = text.find("\n", at)
        return len(text) if end < 0 else end
    if text.startswith("/*", at):
        end = text.find("*/", at + 2)
        return len(text) if end < 0 else end + 2
    raw = _RAW_STRING.match(text, at)
    if raw:
        end = text.find(f"){raw[1]}\"", raw.end())
        return len(text) if end < 0 else end + len(raw[1]) + 2
    if text[at] in "\"'":
        return _end_of_quoted(text, at, text[at])
    if text[at] == "#" and not text[text.rfind("\n", 0, at) + 1 : at].strip():
        end = at
        while True:
            end = text.find("\n", end)
            if end < 0:
                return len(text)
            if text[end - 1] != "\\":
                return end
            end += 1
    return at


def code_tokens(text):
    """Index and text of what is code: words as a whole, other characters one by one; literals as a quote."""
    at = 0
    while at < len(text):
        end = _skip(text, at)
        if end > at:
            if text[at] not in "/#":
                yield at, '"'
            at = end
            continue
        number = re.compile(r"\.?\d(?:'?[\w.]|(?<=[eEpP])[+-])*").match(text, at)
        word = number or _WORD.match(text, at)
        if word:
            yield at, word[0]
            at = word.end()
            continue
        if not text[at].isspace():
            yield at, text[at]
        at += 1


def _chunks(tokens):
    """What stands side by side in a cell, as ranges of `tokens`; the last one may lack its semicolon."""
    begin, depth = 0, 0
    for index, (_, token) in enumerate(tokens):
        depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
        if depth != 0:
            continue
        following = tokens[index + 1][1] if index + 1 < len(tokens) else ""
        # A block ends here unless something goes on: T{1}.f(), struct A {} a, if (b) {} else, do {} while.
        is_block_end = (
            token == "}"
            and (not following or following[0].isalnum() or following[0] in "_\"({#")
            and following not in ("else", "catch")
            and not (tokens[begin][1] == "do" and following == "while")
            and not (_is_type_definition(tokens[begin:index]) and following[:1] not in ("", "#"))
        )
        if token == ";" and not (following == "else") or is_block_end:
            yield begin, index + 1
            begin = index + 1
    if begin < len(tokens):
        yield begin, len(tokens)


def _is_type_definition(tokens):
    words = [token for _, token in tokens]
    return bool(words) and words[0] in ("struct", "class", "union", "enum") and "(" not in words


def _makes_object(words):
    """Whether words that end with a block are a type and its values, as in "Point{1, 2}"."""
    at = next(at for at in reversed(range(len(words))) if words[at] == "{" and _depth(words[at:]) == 0)
    before = words[max(0, at - 2) : at]
    if not before or before[-1] in (")", "=", "else", "do", "try") or not (before[-1] == ">" or _WORD.fullmatch(before[-1])):
        return False
    # Not a variable: "Point p{1, 2}".
    return before[-1] == ">" or len(before) == 1 or before[0] in (":", "(", "+", "-", ",", ".")


def last_expression(code):
    """Where the expression begins and ends whose value a cell shows: one at its end that no semicolon follows."""
    tokens = list(code_tokens(code))
    chunks = list(_chunks(tokens))
    if not chunks or tokens[-1][1] == ";":
        return None
    begin = chunks[-1][0]
    words = [token for _, token in tokens[begin:]]
    if _depth(words) != 0:
        return None
    # "int x" is a declaration that lacks its semicolon, "f() {}" a function: the compiler says so better.
    if words[0] in _NO_EXPRESSION or words[0] in _CLOSING or (words[-1] == "}" and not _makes_object(words)):
        return None
    if len(words) > 1 and _WORD.fullmatch(words[0]) and _WORD.fullmatch(words[1]) and words[0] not in (
        "new", "sizeof", "co_await", "not", "compl", "alignof", "typeid", "noexcept",
    ):
        return None
    return tokens[begin][0], _end_of(code, tokens[-1])


def _depth(words):
    return sum((word in ("(", "[", "{")) - (word in (")", "]", "}")) for word in words)


def is_open(code):
    """Whether a bracket is still to be closed."""
    return _depth([word for _, word in code_tokens(code)]) > 0


def parse_cell(source):
    """Takes a cell apart. Raises CellError for a command that is not known."""
    lines = source.replace("\r\n", "\n").split("\n")
    skipped = _lines_inside_literals(source.replace("\r\n", "\n"))
    cell = Cell(code="")
    depth_of_conditions = 0
    for number, line in enumerate(lines):
        if number in skipped:
            continue
        directive = _DIRECTIVE.match(line)
        word = directive[1] if directive else ""
        depth_of_conditions += word.startswith("if") - (word == "endif")
        if word == "include" and depth_of_conditions == 0:
            cell.includes.append(line.strip())
            lines[number] = ""
            continue
        command = _COMMAND.fullmatch(line)
        if command and not cell.includes and not any(text.strip() for text in lines[:number]):
            cell.commands.append((command[1], command[2].strip()))
            lines[number] = ""
    cell.code = "\n".join(lines)
    known = {"lib", "restart"}
    for name, _ in cell.commands:
        if name not in known:
            raise CellError(f"there is no %{name}: known are {', '.join('%' + word for word in sorted(known))}")
    return cell


def _lines_inside_literals(text):
    """Numbers of the lines that begin inside a comment or a raw string."""
    inside, at = set(), 0
    while at < len(text):
        end = _skip(text, at)
        if end > at and text[at] != "#":
            first = text.count("\n", 0, at)
            inside.update(range(first + 1, first + 1 + text.count("\n", at, end)))
        at = max(end, at + 1)
    return inside


# By a comma, since an expression may have no value.
SHOW = ", ::accelerate::detail::kShownValue;"


# What begins with one of these is a statement, and declares nothing for later cells.
_BLOCKS = ("do", "for", "if", "switch", "try", "while", "{")


_DECLARATIONS = _NO_EXPRESSION | {
    "asm", "auto", "bool", "char", "const", "constexpr", "constinit", "double", "float", "int", "long", "short", "signed",
    "static_assert", "thread_local", "unsigned", "void", "volatile",
}  # fmt: skip


def _is_statement(words):
    """Whether a chunk is an expression: a type and a name make a declaration, which later cells need to see."""
    if words[0] in _DECLARATIONS or not _WORD.fullmatch(words[0]):
        return words[0] not in _DECLARATIONS
    at = 1
    while at < len(words):
        if words[at : at + 2] == [":", ":"]:
            at += 3
        elif words[at] == "<" and words[at + 1 : at + 2] != ["<"]:
            at = _behind_arguments(words, at)
        elif words[at] in ("*", "&"):
            at += 1
        else:
            return not _WORD.fullmatch(words[at])
    return True


def _behind_arguments(words, at):
    """The index behind the template arguments that begin at `at`; the end where they are not closed."""
    depth = 0
    while at < len(words):
        depth += (words[at] == "<") - (words[at] == ">")
        at += 1
        if depth == 0:
            break
    return at


def compiled_text(cell, name):
    """The file that clang-repl reads for a cell: `name` stands in its messages, with lines and columns of the cell.

    Blocks, and statements with lambdas, become functions that are called: clang-repl 19 crashes at lambdas in statements
    outside of functions.
    """
    code = cell.code
    tokens = list(code_tokens(code))
    shown = last_expression(code)
    changes = []  # (begin, end, what stands before, what stands behind)
    for number, (begin, end) in enumerate(_chunks(tokens)):
        words = [token for _, token in tokens[begin:end]]
        before, behind = ("(", f"){SHOW}") if shown and shown[0] == tokens[begin][0] else ("", "")
        if words[0] in _BLOCKS or ("[" in words and "{" in words and _is_statement(words)):
            function = f"accelerate_block_{_word_of(name)}_{number}"
            before, behind = f"void {function}() {{{before}", f"{behind}}} {function}();"
        if before:
            changes.append((tokens[begin][0], _end_of(code, tokens[end - 1]), before, behind))
    pieces, copied = [f'#line 1 "{name}"\n'], 0
    for begin, end, before, behind in changes:
        pieces += [code[copied:begin], before, _place(code, begin, name), code[begin:end], "\n", behind, _place(code, end, name)]
        copied = end
    return "".join([*pieces, code[copied:], "\n"])


def _word_of(name):
    return re.sub(r"\W", "", name)


def _end_of(code, token):
    at, text = token
    return at + len(text) if text != '"' else _skip(code, at)


def _place(code, at, name):
    """Makes what follows stand where `at` is in the cell."""
    begin = code.rfind("\n", 0, at) + 1
    indent = re.sub(r"[^\t]", " ", code[begin:at])
    return f'\n#line {code.count(chr(10), 0, at) + 1} "{name}"\n{indent}'


def without_colours(text):
    return re.sub(r"\x1b\[[0-9;]*[mK]", "", text)


def first_error(diagnostics):
    """The line of the first error, as "In[3]:2:5: error: …"."""
    for line in without_colours(diagnostics).splitlines():
        if "error:" in line:
            return line.strip()
    return "clang-repl crashed at this cell, which was not run"

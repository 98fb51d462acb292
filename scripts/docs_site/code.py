"""Source code as HTML: highlighted, with links from names of the library to the API reference."""

import difflib
import html
import re

from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES, Comment, Name, Text
from pygments.util import ClassNotFound

LANGUAGES = {"sh": "bash", "cpp": "cpp", "c++": "cpp", "python": "python", "cmake": "cmake", "json": "json", "yaml": "yaml",
             "toml": "toml", "diff": "cpp", "sbatch": "bash", "ini": "ini", "xml": "xml"}


def tokens_of(code, language):
    """Pairs of a class of Pygments and a text, as they follow each other in `code`."""
    try:
        lexer = get_lexer_by_name(LANGUAGES.get(language, language or "text"), stripnl=False, ensurenl=False)
    except ClassNotFound:
        lexer = get_lexer_by_name("text", stripnl=False, ensurenl=False)
    parts = list(lexer.get_tokens(code + "\n"))
    # Comments of one line are not known as such without the line's end, which is not wanted here.
    while parts and not parts[-1][1].rstrip("\n"):
        parts.pop()
    if parts:
        parts[-1] = (parts[-1][0], parts[-1][1].rstrip("\n"))
    return parts


def is_code_name(text):
    return re.fullmatch(r"[A-Za-z_]\w*", text) is not None


class Highlighter:
    """`names` finds where a name of the library is described (see api_names.py); without it nothing is linked."""

    def __init__(self, names=None):
        self.names = names
        self.titles = {}  # of pages by their files, for comments that name one

    def link(self, parts, index, root):
        """The address for the name at parts[index], or None."""
        if self.names is None:
            return None
        before = "".join(text for token, text in parts[max(0, index - 8) : index] if token not in Comment)
        before = re.findall(r"\w+|::|->|\S", before)
        found = None
        name = parts[index][1]
        if before[-1:] == ["::"]:
            if before[-2:-1] == ["accelerate"]:
                found = self.names.free(name)
            elif len(before) > 1:
                found = self.names.member(before[-2], name)
        elif before[-1:] == ["."]:
            if before[-2:-1] == ["accelerator"]:
                found = self.names.member("Accelerator", name)
        elif before[-1:] != ["->"]:
            found = self.names.type(name)
        return root + found if found else None

    def lines(self, code, language, root=""):
        """The lines of `code` as HTML."""
        parts = tokens_of(code, language)
        is_cpp = LANGUAGES.get(language) == "cpp"
        lines = [""]
        for index, (token, text) in enumerate(parts):
            kind = ""
            while token is not None and not kind:
                kind, token = STANDARD_TYPES.get(token, ""), token.parent
            address = self.link(parts, index, root) if is_cpp and is_code_name(text) and parts[index][0] in Name else None
            for number, piece in enumerate(text.split("\n")):
                if number:
                    lines.append("")
                if not piece:
                    continue
                piece = html.escape(piece, quote=False)
                if address:
                    lines[-1] += f'<a href="{address}">{piece}</a>'
                elif kind and parts[index][0] not in Text and kind not in ("p", "n", "o"):
                    lines[-1] += f'<span class="{kind}">{piece}</span>'
                else:
                    lines[-1] += piece
        return lines

    def block(self, code, language, root="", before=None):
        """A code block of a page. Lines that the program `before` did not have are marked."""
        code = code.rstrip("\n")
        label = {"python": "Python", "cmake": "CMake", "json": "JSON", "yaml": "YAML"}.get(language, "")
        if language == "diff":
            body = self.changes(code, root)
        elif before is not None:
            body = self.news(code, before, language, root)
        else:
            body = "\n".join(self.lines(code, language, root))
        tag = f'<span class="language">{label}</span>' if label else ""
        return f'<div class="code" data-language="{html.escape(language)}">{tag}<pre tabindex="0"><code>{body}</code></pre></div>\n'

    def news(self, code, before, language, root):
        same = difflib.SequenceMatcher(None, before.split("\n"), code.split("\n"), autojunk=False)
        old = {line for block in same.get_matching_blocks() for line in range(block.b, block.b + block.size)}
        return "".join(line + "\n" if number in old or not line.strip() else f'<span class="line new">{line}\n</span>'
                       for number, line in enumerate(self.lines(code, language, root)))

    def changes(self, code, root):
        """A diff of C++: the code is highlighted, the signs become marks."""
        raw = code.split("\n")
        lines = self.lines("\n".join(line[1:] for line in raw), "cpp", root)
        kinds = {"+": "new", "-": "old"}
        return "".join(
            f'<span class="line {kinds.get(before[:1], "same")}"><span class="sign">{before[:1] or " "}</span>{after}\n</span>'
            for before, after in zip(raw, lines))

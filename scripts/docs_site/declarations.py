"""The text of a declaration and the comment that belongs to it, from the lines of a header.

Doxygen says what is declared and where. How it reads is taken from the source, as its authors laid it out.
"""

import re


def is_comment(line):
    return line.lstrip().startswith("//")


def is_note_for_tools(line):
    return re.match(r"\s*// (NOLINT|clang-format)", line) is not None


def indent_of(line):
    return len(line) - len(line.lstrip())


def without_mark(line):
    return re.sub(r"^\s*// ?", "", line)


def start_of(lines, line):
    """The first line (counted from 0) of the declaration whose name stands on `line` (counted from 1)."""
    at = line - 1
    while at > 0:
        before = lines[at - 1].strip()
        if not before or is_comment(before) or before.startswith("#") or re.search(r"[;{}]\s*(//.*)?$|^(public|private|protected):$", before):
            break
        at -= 1
    return at


def end_of(lines, start, kind):
    """(line, column) of the character that ends the declaration: `;`, or the brace or colon that begins a body."""
    depth, was_called = 0, False
    for at in range(start, len(lines)):
        text = re.sub(r'"(\\.|[^"\\])*"', lambda found: "_" * len(found.group()), lines[at])
        text = re.sub(r"//.*", "", text)
        for column, sign in enumerate(text):
            if sign in "([":
                depth += 1
            elif sign in ")]":
                depth -= 1
                was_called = was_called or depth == 0
            elif sign == "{" and depth == 0 and kind in ("function", "class"):
                # Braces of a requires-clause belong to the declaration.
                return at, column
            elif sign == "{":
                depth += 1
            elif sign == "}":
                depth -= 1
            elif sign == ";" and depth == 0:
                return at, column
            elif (sign == ":" and depth == 0 and kind == "function" and was_called and text[column - 1] != ":"
                  and text[column + 1 : column + 2] != ":"):
                return at, column
            elif sign == ":" and depth == 0 and kind == "enum_head":
                return at, column
    return len(lines) - 1, len(lines[-1])


def without_macro(text):
    """What users need not see goes; lines that were aligned behind it follow."""
    found = re.search(r"ACCELERATE_(EXPORT|HIDDEN) ", text)
    if not found:
        return text
    width = len(found.group())
    behind = re.sub(rf"\n {{{width}}}(?= {{4,}})", "\n", text[found.end() :])
    return text[: found.start()] + behind


def declaration(lines, line, kind):
    """(first line, last line, text) of what is declared on `line`; a body is left out."""
    start = start_of(lines, line)
    end, column = end_of(lines, start, kind)
    text = [*lines[start:end], lines[end][: column + (1 if lines[end][column : column + 1] == ";" else 0)]]
    width = indent_of(text[0])
    text = [part[width:] if part[:width].strip() == "" else part.lstrip() for part in text if not is_note_for_tools(part)]
    joined = without_macro("\n".join(text).rstrip())
    return start, end, re.sub(r"  // NOLINT\S*.*$", "", joined, flags=re.M)


def comment_above(lines, start):
    """The comment on the lines above the line `start`, without its marks."""
    found, at = [], start - 1
    while at >= 0 and is_comment(lines[at]):
        if indent_of(lines[at]) > indent_of(lines[start]) + 2:
            break  # the end of what stands behind the declaration before
        if not is_note_for_tools(lines[at]):
            found.insert(0, without_mark(lines[at]))
        elif re.search(r"NOLINTEND|NOLINTBEGIN", lines[at]):
            break
        at -= 1
    return found


def comment_behind(lines, end):
    """The comment behind the declaration that ends on the line `end`, with the lines below that continue it."""
    found = re.search(r";\s*// ?(?!NOLINT)(.*)$", lines[end])
    if not found:
        return []
    column = lines[end].index("//", found.start())
    text, at = [found.group(1)], end + 1
    while at < len(lines) and is_comment(lines[at]) and indent_of(lines[at]) == column:
        text.append(without_mark(lines[at]))
        at += 1
    return text


def notes(lines):
    """(line, text) of each comment that stands by itself, before a blank line: it is about what follows. Not the one at the top."""
    found, at, is_detail = [], next((at for at, line in enumerate(lines) if not is_comment(line)), 0), False
    while at < len(lines):
        if re.match(r"(\}  // )?namespace detail\b", lines[at]):
            is_detail = not lines[at].startswith("}")
        begin = at
        while at < len(lines) and is_comment(lines[at]):
            at += 1
        text = [without_mark(line).strip("- ") for line in lines[begin:at] if not is_note_for_tools(line)]
        if text and not is_detail and at < len(lines) and not lines[at].strip() and indent_of(lines[begin]) <= 2:
            found.append((begin, text))
        at = max(at, begin + 1)
    return found


def leading_comment(lines):
    """The comment at the top of a header."""
    count = next((at for at, line in enumerate(lines) if not line.startswith("//")), len(lines))
    return [without_mark(line) for line in lines[:count]]

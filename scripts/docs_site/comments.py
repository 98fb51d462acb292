"""Comments of C++ as HTML: paragraphs, lists, and what is indented as code or as it stands."""

import html
import re

BULLET = re.compile(r"^ {0,3}(?:- |\d\. )")
NAME = re.compile(r"`([^`]+)`|(\{\.\w[^}]*\}|(?<!\w)--[a-z][\w-]+|docs/\w+\.md|\b[a-z_]{2,}\w*(?:\.[a-z_]\w+)+(?:\(\))?|\b(?:(?:[A-Za-z_]\w*::)+[A-Za-z_]\w*(?:\(\))?|[a-z_]\w*\(\)|[A-Z][a-z]\w*[A-Z]\w*|(?:[a-z]+_)+[a-z]+\b|k[A-Z]\w+))")


def parts_of(lines):
    """The paragraphs, lists and indented blocks of a comment, as ("text" | "list" | "block", lines)."""
    parts = []
    inside = False  # of an item of a list, which goes on as long as lines stand further in than its dash
    for line in [*lines, ""]:
        deep = len(line) - len(line.lstrip())
        kind = parts[-1][0] if parts else None
        if not line.strip():
            if kind == "block":
                parts[-1][1].append("")
            elif kind is not None:
                parts.append(("end", []))
            inside = False
        elif BULLET.match(line):
            if kind != "list":
                parts.append(("list", []))
            parts[-1][1].append(BULLET.sub("", line))
            inside = True
        elif inside and deep >= 2:
            parts[-1][1][-1] += " " + line.strip()
        elif deep >= 2:
            if kind != "block":
                parts.append(("block", []))
            parts[-1][1].append(line)
            inside = False
        else:
            if kind != "text":
                parts.append(("text", []))
            parts[-1][1].append(line)
            inside = False
    return [(kind, lines) for kind, lines in parts if kind != "end"]


class Comments:
    """`names` and the highlighter are those of code.py."""

    def __init__(self, highlighter):
        self.highlighter = highlighter

    def html(self, lines, root="", near=None):
        """`near` is the class whose comment it is."""
        return "\n".join(self.part(kind, part, root, near) for kind, part in parts_of(lines))

    def part(self, kind, lines, root, near):
        if kind == "block":
            return self.indented(lines, root, near)
        if kind == "list":
            return "<ul>" + "".join(f"<li>{self.inline(item, root, near)}</li>" for item in lines) + "</ul>"
        return f"<p>{self.inline(' '.join(line.strip() for line in lines), root, near)}</p>"

    def indented(self, lines, root, near):
        """Code, or a table of words and what they mean."""
        while not lines[-1].strip():
            lines = lines[:-1]
        width = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
        lines = [line[width:] for line in lines]
        text = "\n".join(lines)
        if re.search(r"[;{}]\s*(//.*)?$|\w\(.*\)|^#include|::", text, re.M) and not self.table(lines):
            return self.highlighter.block(text, "cpp", root)
        rows = self.table(lines)
        if rows:
            cells = "".join(f"<tr><td><code>{html.escape(name)}</code></td><td>{self.inline(meaning, root, near)}</td></tr>" for name, meaning in rows)
            return f'<div class="table"><table><tbody>{cells}</tbody></table></div>'
        return f'<pre class="plain" tabindex="0">{html.escape(text)}</pre>'

    def table(self, lines):
        """Pairs of words and meanings where every line has a gap at one place."""
        rows = []
        for line in lines:
            found = re.match(r"(\S.*?)  +(\S.*)$", line)
            if found and not re.search(r"\S   +\S", found.group(2)):
                rows.append([found.group(1), found.group(2)])
            elif rows and line.startswith("      ") and not re.search(r"\S  +\S", line.strip()):
                rows[-1][1] += " " + line.strip()
            else:
                return None
        if len(rows) < 2 or any(re.search(r"[;{]$", name) or "//" in meaning[:2] for name, meaning in rows):
            return None
        return rows

    def inline(self, text, root, near):
        def name_of(found):
            if found.group(1) is None and found.group(2).startswith("docs/"):
                title = self.highlighter.titles.get(found.group(2), found.group(2))
                return f'<a href="{root}{found.group(2)[5:-3]}.html">{html.escape(title)}</a>'
            word = found.group(1) or found.group(2)
            names = self.highlighter.names
            address = names.mentioned(word, near) if names is not None else None
            if address is None and re.fullmatch(r"[A-Z][A-Za-z]+", word) and found.group(1) is None:
                return word  # a name of something else
            code = f"<code>{html.escape(word, quote=False)}</code>"
            if address:
                return f'<a class="name" href="{root}{address}">{code}</a>'
            return code
        parts, at = [], 0
        for found in NAME.finditer(text):
            parts += [html.escape(text[at : found.start()], quote=False), name_of(found)]
            at = found.end()
        return "".join(parts) + html.escape(text[at:], quote=False)

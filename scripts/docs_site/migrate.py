"""The page "Which lines change": its form and the lines that the browser composes."""

import json
import re
from pathlib import Path

from . import loops
from .markdown import Section


def highlighted(lines, highlighter, root):
    """The HTML of each line, highlighted by itself."""
    return [highlighter.lines(line.code, "cpp", root)[0] if line.code else "" for line in lines]


def script_of(repository: Path, highlighter):
    lines = loops.read_lines(repository / "docs/site/loop.txt")
    rows = [[line.side, line.when, line.code, text] for line, text in zip(lines, highlighted(lines, highlighter, ""))]
    return "window.loop = " + json.dumps({"options": loops.OPTIONS, "lines": rows}, separators=(",", ":")).replace("</", "<\\/") + ";\n"


def fill(page, repository: Path):
    """Puts the form of docs/site/migrate.html into the page."""
    page.body = (repository / "docs/site/migrate.html").read_text(encoding="utf-8")
    page.heading = re.search(r"<h1>(.*?)</h1>", page.body).group(1)
    page.source = "docs/site/loop.txt"
    page.scripts = ["loop.js", "migrate.js"]
    page.kind = "tool"
    text = re.sub(r"<[^>]+>", " ", page.body)
    page.sections = [Section("", page.heading, text)]

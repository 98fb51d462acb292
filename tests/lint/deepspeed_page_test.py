#!/usr/bin/env python3
"""docs/deepspeed.md shows the tables that the program goes by: the keys of DeepSpeed, and the settings of a sharded run.

`deepspeed_page_test.py --write` writes these parts of the page anew.
"""

import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "deepspeed.md"
SOURCES = ROOT / "src" / "config" / "sharding"

# Literals that stand side by side are one.
TEXT = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
KEY = re.compile(r"\b(used|idle|refused)\(\s*" + TEXT + r",\s*(?:KeyOff::(k\w+),\s*)?" + TEXT + r"\)")
SETTING = re.compile(r"\b(deepspeed|fsdp)_row\(\s*" + TEXT + r",\s*" + TEXT + r",\s*" + TEXT + r"\)")
LET_PASS = {
    "kFalse": "`false`",
    "kTrue": "`true`",
    "kDisabled": 'without `"enabled": true`',
    "kAtMostOne": "0 or 1",
    "kMean": '`"mean"`',
    "kAbsent": "nothing",
}


def literal(source):
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', source))


def keys():
    text = (SOURCES / "deepspeed_key_table.cpp").read_text(encoding="utf-8")
    table = text[text.index("kDeepspeedKeys[]") :]
    return [(kind, literal(path), off, literal(about)) for kind, path, off, about in KEY.findall(table)]


def key_table():
    rows = ["| key | what it is; the default |", "|---|---|"]
    rows += [f"| `{path}` | {about} |" for kind, path, _, about in keys() if kind == "used"]
    rows += ["", "| refused | what is not available | let pass |", "|---|---|---|"]
    rows += [f"| `{path}` | {about} | {LET_PASS[off]} |" for kind, path, off, about in keys() if kind == "refused"]
    rows += ["", "| no effect | why |", "|---|---|"]
    rows += [f"| `{path}` | {about} |" for kind, path, _, about in keys() if kind == "idle" and about]
    plain = [f"`{path}`" for kind, path, _, about in keys() if kind == "idle" and not about]
    rows += ["", "Likewise, since they concern DeepSpeed's own way of working: " + ", ".join(plain) + "."]
    return rows


def decided(family, what):
    if not what:
        return "nothing here"
    if what == ".":
        return "the configuration itself"
    return f"`{what}`" if family == "deepspeed" else what.replace("_", " ")


def setting_table():
    text = (SOURCES / "sharding_settings.cpp").read_text(encoding="utf-8")
    table = text[text.index("kShardingSettings[]") :]
    rows = ["| setting | variable | decides |", "|---|---|---|"]
    for family, name, variable, what in SETTING.findall(table):
        rows.append(f"| `{literal(name)}` | `{literal(variable)}` | {decided(family, literal(what))} |")
    return rows


def between(text, name, rows):
    """`text` with `rows` in its part called `name`."""
    begin = text.index("-->\n", text.index(f"<!-- {name}: ")) + len("-->\n")
    end = text.index(f"<!-- end of {name} -->")
    return text[:begin] + "\n" + "\n".join(rows) + "\n\n" + text[end:]


def page(text):
    return between(between(text, "keys", key_table()), "settings", setting_table())


class Page(unittest.TestCase):
    def test_every_row_of_the_tables_was_found(self):
        for name, rows, pattern in (
            ("deepspeed_key_table.cpp", keys(), r"^ +(?:used|idle|refused)\("),
            ("sharding_settings.cpp", setting_table()[2:], r"^ +(?:deepspeed|fsdp)_row\("),
        ):
            text = (SOURCES / name).read_text(encoding="utf-8")
            self.assertEqual(len(rows), len(re.findall(pattern, text, re.M)), name)
            self.assertTrue(rows)

    def test_the_page_shows_what_the_tables_say(self):
        self.maxDiff = None
        text = PAGE.read_text(encoding="utf-8")
        self.assertEqual(text, page(text), "run tests/lint/deepspeed_page_test.py --write")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        unittest.main()

#!/usr/bin/env python3
"""The generator of the documentation site, and the links of all its pages but those of the API reference."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "scripts"))


def has_packages():
    return all(importlib.util.find_spec(name) for name in ("markdown_it", "pygments"))


if not has_packages() and not os.environ.get("ACCELERATE_SITE_PYTHON") and os.path.exists("/usr/bin/python3"):
    # Debian's packages belong to Debian's Python; the one in PATH may be another.
    os.environ["ACCELERATE_SITE_PYTHON"] = "1"
    runner = REPOSITORY / "tests/support/run_python_test.py"
    os.execv("/usr/bin/python3", ["/usr/bin/python3", str(runner), str(Path(__file__).resolve())])

if has_packages():
    from docs_site import declarations, links
    from docs_site.code import Highlighter
    from docs_site.comments import Comments
    from docs_site.examples import first_sentence
    from docs_site.layout import Page
    from docs_site.markdown import Renderer
    from docs_site.site_map import SiteMap, address_of


@unittest.skipUnless(has_packages(), "python3-markdown-it and python3-pygments are not installed: scripts/setup.sh docs")
class Generator(unittest.TestCase):
    def render(self, text):
        return Renderer(SiteMap(REPOSITORY), Highlighter()).render(text, Page("a.html", "A", "S", source="docs/a.md"))

    def test_anchors_are_those_of_github(self):
        rendered = self.render("# Title\n\n## What `prepare()` does\n\n## Names\n\n## Names\n\n### How: a & b\n")
        self.assertEqual(rendered.title, "Title")
        self.assertEqual([anchor for _, anchor, _ in rendered.headings], ["what-prepare-does", "names", "names-1", "how-a--b"])

    def test_python_and_cpp_that_follow_each_other_stand_side_by_side(self):
        body = self.render("```python\nx\n```\n<!-- file-scope -->\n```cpp\ny\n```\n").body
        self.assertEqual(body.count('class="twins"'), 1)
        self.assertNotIn("file-scope", body)

    def test_a_diff_is_highlighted_as_cpp_with_marks(self):
        body = self.render("```diff\n int x;\n-int y;\n+int z;\n```\n").body
        self.assertIn('class="line old"', body)
        self.assertIn('<span class="kt">int</span> z;', body)

    def test_lines_that_a_program_changes_are_marked(self):
        body = self.render("```cpp\nf();\ng();\n```\n\n<!-- changes -->\n<!-- run -->\n```cpp\nf();\nh();\n```\n").body
        self.assertEqual(body.count('class="line new"'), 1)
        self.assertIn("h();", body.split('class="line new"')[1])

    def test_text_is_not_markup(self):
        body = self.render("`<b>` and\n\n```cpp\nstd::vector<int> x;\n```\n").body
        self.assertIn("<code>&lt;b&gt;</code>", body)
        self.assertIn("vector&lt;", body)

    def test_links_lead_to_pages_of_the_site(self):
        site = SiteMap(REPOSITORY)
        page = Page("training.html", "", "", source="docs/training.md")
        deep = Page("examples/cluster/index.html", "", "", source="examples/cluster/README.md")
        self.assertEqual(site.resolve("data.md#streams", page), "data.html#streams")
        self.assertEqual(site.resolve("../README.md", page), "index.html")
        self.assertEqual(site.resolve("../include/accelerate/zero.h", page), "api/zero.html")
        self.assertEqual(site.resolve("../../docs/launching.md", deep), "../../launching.html")
        self.assertEqual(site.resolve("rooms.json", page), "files/rooms.json")
        self.assertEqual(site.resolve("https://pytorch.org", page), "https://pytorch.org")
        self.assertEqual(site.problems, [])
        site.resolve("nothing.md", page)
        self.assertEqual(site.problems, ["docs/training.md: nothing.md leads nowhere"])
        self.assertEqual(address_of("examples/by_feature/gan.cpp"), "examples/by_feature/gan.html")

    def test_paths_become_titles_and_links(self):
        body = self.render("See [data.md](data.md), `examples/by_feature/gan.cpp` and `docs/nothing.md`.\n").body
        self.assertIn('<a href="data.html">Data</a>', body)
        self.assertIn('href="examples/by_feature/gan.html"', body)
        self.assertIn("<code>docs/nothing.md</code>.", body)

    def test_broken_links_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            site = Path(folder)
            (site / "a.html").write_text('<h2 id="x"></h2><h2 id="x"></h2><a href="b.html#y"></a><a href="c.html"></a>'
                                         '<img src="https://example.org/p.png"><a href="#x"></a><a href="https://example.org"></a>')
            (site / "b.html").write_text("")
            self.assertEqual(links.problems_of(site), [
                "a.html: two parts have the anchor #x", "a.html: b.html#y leads to no anchor of that page",
                "a.html: c.html leads nowhere", "a.html: https://example.org/p.png would be loaded from the network"])

    def test_declarations_come_without_bodies_and_with_their_comments(self):
        lines = ("// Adds.\n// NOLINTNEXTLINE(x)\ntemplate <class T>\nACCELERATE_EXPORT T add(T a = {},\n                        T b = {}) {\n  return a + b;\n}\n"
                 "int size = 1;  // of a batch;\n               // on each rank\nPoint(int x) : x_(x) {}\n").split("\n")
        start, _, text = declarations.declaration(lines, 4, "function")
        self.assertEqual(text, "template <class T>\nT add(T a = {},\n      T b = {})")
        self.assertEqual(declarations.comment_above(lines, start), ["Adds."])
        _, end, text = declarations.declaration(lines, 8, "other")
        self.assertEqual((text, declarations.comment_behind(lines, end)), ("int size = 1;", ["of a batch;", "on each rank"]))
        self.assertEqual(declarations.declaration(lines, 10, "function")[2], "Point(int x)")

    def test_comments_that_stand_alone_are_notes(self):
        lines = ("// The top.\n#pragma once\n\n// The calls below wait.\n// NOLINTBEGIN(x)\n\n// Of f.\nvoid f();\n"
                 "namespace detail {\n// Not shown.\n\n}  // namespace detail\n").split("\n")
        self.assertEqual(declarations.notes(lines), [(3, ["The calls below wait."])])

    def test_comments_become_paragraphs_lists_and_code(self):
        text = Comments(Highlighter()).html(["What it", "does:", "- one", "- two", "", "  call(x);"])
        self.assertIn("<p>What it does:</p>", text)
        self.assertEqual(text.count("<li>"), 2)
        self.assertIn("<pre", text)
        text = Comments(Highlighter()).html(["DeepSpeed by --use_deepspeed, see save_state() and {.only = model}."])
        self.assertEqual(text, "<p>DeepSpeed by <code>--use_deepspeed</code>, see <code>save_state()</code> and <code>{.only = model}</code>.</p>")
        self.assertEqual(first_sentence("Adds a\nb. Then more."), "Adds a b.")


@unittest.skipUnless(has_packages(), "python3-markdown-it and python3-pygments are not installed: scripts/setup.sh docs")
class Site(unittest.TestCase):
    def test_every_page_is_made_and_no_link_is_broken(self):
        with tempfile.TemporaryDirectory(prefix="accelerate-site-") as folder:
            result = subprocess.run([sys.executable, REPOSITORY / "scripts/build_site.py", "--no-api", "--out", Path(folder) / "site"],
                                    capture_output=True, text=True, timeout=100)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            pages = {path.relative_to(Path(folder) / "site").as_posix() for path in Path(folder).rglob("*.html")}
        documents = {address_of(f"docs/{path.name}") for path in (REPOSITORY / "docs").glob("*.md")}
        programs = {address_of(path.relative_to(REPOSITORY).as_posix()) for path in (REPOSITORY / "examples").rglob("*.cpp")}
        self.assertEqual((documents | programs | {"index.html", "migrate.html"}) - pages, set())


if __name__ == "__main__":
    unittest.main()

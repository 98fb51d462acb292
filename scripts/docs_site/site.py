"""The whole site: reads the sources of all pages, writes them with what they need, and checks the links."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from . import links, migrate, search_index
from .api_pages import ApiPages
from .code import Highlighter
from .doxygen import Reader
from .examples import Examples
from .layout import Group, whole
from .markdown import Renderer
from .site_map import SiteMap

ASSETS = ["site.css", "code.css", "theme.js", "site.js", "search.js", "migrate.js", "messages.js"]


def run_doxygen(repository: Path, out: Path):
    """Writes XML of the public headers to out/xml."""
    if shutil.which("doxygen") is None:
        raise SystemExit("there is no doxygen: scripts/setup.sh docs installs it; --no-api leaves the API reference out")
    settings = (repository / "docs/site/Doxyfile").read_text() + f"OUTPUT_DIRECTORY = {out}\n"
    subprocess.run(["doxygen", "-"], input=settings, text=True, cwd=repository, check=True, timeout=600)
    return out / "xml"


class Site:
    def __init__(self, repository: Path, out: Path, with_api=True):
        self.repository, self.out, self.with_api = repository, out, with_api
        self.map = SiteMap(repository, with_api)
        self.highlighter = Highlighter()
        self.highlighter.titles = {page.source: page.title for page in self.map.pages()}
        self.renderer = Renderer(self.map, self.highlighter)
        self.pages = []
        self.version = re.search(r"VERSION (\d+\.\d+\.\d+)", (repository / "CMakeLists.txt").read_text()).group(1)

    def build(self):
        """Returns what is wrong, one line for each problem."""
        groups = list(self.map.groups)
        api = self.api_pages()
        for page in self.map.pages():
            self.fill(page)
        examples = Examples(self.repository, self.renderer, self.highlighter).pages()
        groups.insert(-1, Group("Examples", examples, open=False))
        if api:
            groups.insert(-1, Group("API reference", api, open=False))
        self.pages = [page for group in groups for page in group.pages]
        self.write(groups)
        return self.map.problems + links.problems_of(self.out)

    def api_pages(self):
        if not self.with_api:
            return []
        with tempfile.TemporaryDirectory(prefix="accelerate-doxygen-") as folder:
            headers = Reader(self.repository, run_doxygen(self.repository, Path(folder))).read()
        return ApiPages(headers, self.map.settings["api"], self.highlighter).pages()

    def fill(self, page):
        if page.source == "migrate":
            migrate.fill(page, self.repository)
            return
        rendered = self.renderer.render((self.repository / page.source).read_text(encoding="utf-8"), page, page.root)
        page.heading, page.body, page.headings, page.sections = rendered.title, rendered.body, rendered.headings, rendered.sections
        if 'class="twins"' in page.body:
            page.kind = "pairs"
        if page.address == "messages.html":
            page.scripts = ["messages.js"]
        if page.address == "index.html":
            page.kind = "start"
            page.body = self.first_page(rendered.body, page)

    def first_page(self, body, page):
        """README with ways to begin below its first paragraph, and all pages as cards instead of its list of links."""
        ways = [("five_minutes.html", "Your loop in five minutes"), ("migrate.html", "Which lines change"), ("from_python.html", "Coming from Python"),
                ("examples/index.html", "Examples")]
        buttons = "".join(f'<li><a href="{address}">{title}</a></li>' for address, title in ways)
        body = body.replace("</p>\n", f'</p>\n<ul class="ways">{buttons}</ul>\n', 1)
        cards = "".join(
            f"<h3>{group.title}</h3><ul class=\"cards\">"
            + "".join(f'<li><a href="{entry.address}"><strong>{entry.title}</strong><span>{entry.about}</span></a></li>'
                      for entry in group.pages if entry is not page) + "</ul>"
            for group in self.map.groups)
        return re.sub(r'(<h2 id="further-reading">.*?</h2>\n).*', lambda found: found.group(1) + cards, body, flags=re.S)

    def write(self, groups):
        shutil.rmtree(self.out, ignore_errors=True)
        assets = self.out / "assets"
        assets.mkdir(parents=True)
        for name in ASSETS:
            shutil.copy(self.repository / "docs/site" / name, assets / name)
        shutil.copy(self.repository / "src/monitor/page/icon.svg", assets / "icon.svg")
        (assets / "search-index.js").write_text(search_index.script_of(self.pages), encoding="utf-8")
        (assets / "loop.js").write_text(migrate.script_of(self.repository, self.highlighter), encoding="utf-8")
        for source, address in self.map.copied.items():
            target = self.out / address
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.repository / source, target)
        for page in self.pages:
            target = self.out / page.address
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(whole(page, groups, self.pages, self.version), encoding="utf-8")

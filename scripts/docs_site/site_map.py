"""Which file of the repository is shown where on the site, and where the links of a file lead."""

import json
import posixpath
import re
from pathlib import Path
from urllib.parse import urlsplit

from .layout import Group, Page

SPECIAL = {"README.md": "index.html", "migrate": "migrate.html", "docs/site/migrate.html": "migrate.html"}


def address_of(source):
    """The page of a Markdown file, a program or a script of examples/, or a public header; None for any other file."""
    if source in SPECIAL:
        return SPECIAL[source]
    if source.startswith("include/accelerate/"):
        return "api/" + source.removeprefix("include/accelerate/").removesuffix(".h").replace("/", "_") + ".html"
    if source.startswith("examples/") and re.search(r"\.(cpp|sbatch|sh)$|/hostfile$", source):
        return re.sub(r"\.cpp$", "", source).replace(".", "_") + ".html"
    if source == "examples/cluster/README.md":
        return "examples/cluster/index.html"
    if source.endswith(".md"):
        return Path(source).stem.lower() + ".html"
    return None


class SiteMap:
    def __init__(self, repository: Path, with_api=True):
        self.repository, self.with_api = repository, with_api
        self.settings = json.loads((repository / "docs/site/navigation.json").read_text())
        self.groups = [self.group(section) for section in self.settings["sections"]]
        self.add_unlisted()
        self.copied = {}  # file of the repository: address on the site
        self.problems = []

    def group(self, section):
        pages = [Page(address_of(entry["source"]), entry["title"], section["title"], entry["about"], entry["source"])
                 for entry in section["pages"]]
        return Group(section["title"], pages, open=section["title"] != "Inside")

    def add_unlisted(self):
        """A page of docs/ that the navigation does not name yet stands at the end of its last part."""
        listed = {page.source for group in self.groups for page in group.pages}
        for path in sorted((self.repository / "docs").glob("*.md")):
            source = f"docs/{path.name}"
            if source not in listed:
                title = path.read_text(encoding="utf-8").split("\n", 1)[0].lstrip("# ")
                self.groups[-1].pages.append(Page(address_of(source), title, self.groups[-1].title, "", source))

    def title_of(self, text, target, page):
        """What a link reads as: a path of a page of the site is replaced by its title."""
        if not re.fullmatch(r"(docs/)?\w+\.md", text):
            return text
        source = posixpath.normpath(posixpath.join(posixpath.dirname(page.source), urlsplit(target).path))
        return next((entry.title for entry in self.pages() if entry.source == source), text)

    def mentioned(self, text, page):
        """The address of a file that a text names by its path in the repository, or None."""
        if re.fullmatch(r"examples(/\w+)?/?", text) and (self.repository / text).is_dir():
            return page.root + "examples/index.html"
        if not re.fullmatch(r"(docs|examples|include/accelerate)/[\w/]+\.(md|cpp|h)", text) or not (self.repository / text).is_file():
            return None
        address = address_of(text)
        if address is None or address == page.address or (address.startswith(("api/", "api/detail")) and (not self.with_api or "detail" in text)):
            return None
        # A header beside a program is shown on the page of that program.
        return page.root + address if not text.startswith("examples/") or text.endswith(".cpp") else None

    def pages(self):
        return [page for group in self.groups for page in group.pages]

    def resolve(self, target, page):
        """Where the link `target` of the file page.source leads, as an address in page.address."""
        parts = urlsplit(target)
        if parts.scheme or parts.netloc or not parts.path:
            return target
        source = posixpath.normpath(posixpath.join(posixpath.dirname(page.source), parts.path))
        fragment = f"#{parts.fragment}" if parts.fragment else ""
        if source.startswith("..") or not (self.repository / source).exists():
            self.problems.append(f"{page.source}: {target} leads nowhere")
            return target
        if (self.repository / source).is_dir():
            self.problems.append(f"{page.source}: {target} leads to a folder")
            return target
        address = address_of(source)
        # Without the API reference a header is shown as it is.
        if address is None or (address.startswith("api/") and not self.with_api):
            address = self.copied.setdefault(source, "files/" + source.removeprefix("docs/"))
        return page.root + address + fragment

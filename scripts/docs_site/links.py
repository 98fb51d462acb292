"""Looks at every page that was written: each link must lead to a file of the site and to an anchor that is there."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class References(HTMLParser):
    def __init__(self):
        super().__init__()
        self.anchors, self.doubled, self.links, self.loaded = set(), [], [], []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if attributes.get("id"):
            if attributes["id"] in self.anchors:
                self.doubled.append(attributes["id"])
            self.anchors.add(attributes["id"])
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        elif attributes.get("src") or (tag == "link" and attributes.get("href")):
            self.loaded.append(attributes.get("src") or attributes["href"])


def problems_of(site: Path):
    """What is wrong with the links of all pages below `site`, one line for each."""
    pages = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = References()
        pages[path].feed(path.read_text(encoding="utf-8"))
    problems = []
    for path, found in pages.items():
        here = path.relative_to(site)
        problems += [f"{here}: two parts have the anchor #{anchor}" for anchor in found.doubled]
        for target in found.links + found.loaded:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in found.loaded:
                    problems.append(f"{here}: {target} would be loaded from the network")
                continue
            to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not to.is_file():
                problems.append(f"{here}: {target} leads nowhere")
            elif parts.fragment and to in pages and unquote(parts.fragment) not in pages[to].anchors:
                problems.append(f"{here}: {target} leads to no anchor of that page")
    return problems

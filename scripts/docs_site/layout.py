"""What every page of the site has around its text: bar, navigation, contents, the way to the pages before and after."""

import html
from dataclasses import dataclass, field

SUN = ('<svg viewBox="0 0 20 20" width="18" height="18" aria-hidden="true"><circle cx="10" cy="10" r="6.5" fill="none" '
       'stroke="currentColor" stroke-width="1.6"/><path d="M10 3.5a6.5 6.5 0 0 1 0 13z" fill="currentColor"/></svg>')
LENS = ('<svg viewBox="0 0 20 20" width="16" height="16" aria-hidden="true"><circle cx="8.5" cy="8.5" r="5.5" fill="none" '
        'stroke="currentColor" stroke-width="1.8"/><path d="M13 13l4.5 4.5" stroke="currentColor" stroke-width="1.8" '
        'stroke-linecap="round"/></svg>')
BARS = ('<svg viewBox="0 0 20 20" width="18" height="18" aria-hidden="true"><path d="M3 5.5h14M3 10h14M3 14.5h14" '
        'stroke="currentColor" stroke-width="1.8" stroke-linecap="round"/></svg>')


@dataclass
class Page:
    address: str  # from the top of the site
    title: str  # as the navigation calls it
    section: str
    about: str = ""
    source: str = ""  # the file that it shows, from the top of the repository
    heading: str = ""
    body: str = ""
    headings: list = field(default_factory=list)  # (level, anchor, text)
    sections: list = field(default_factory=list)  # what the search finds
    kind: str = "page"
    scripts: list = field(default_factory=list)

    @property
    def root(self):
        return "../" * self.address.count("/")


@dataclass
class Group:
    """One part of the navigation."""

    title: str
    pages: list
    open: bool = True


def navigation(groups, page):
    parts = []
    for group in groups:
        here = any(entry.address == page.address for entry in group.pages)
        entries = "".join(
            f'<li><a href="{page.root}{entry.address}"{" aria-current=page" if entry.address == page.address else ""}>'
            f"{html.escape(entry.title)}</a></li>" for entry in group.pages)
        parts.append(f'<details{" open" if group.open or here else ""}><summary>{html.escape(group.title)}</summary><ul>{entries}</ul></details>')
    return "".join(parts)


def contents(page):
    shown = [(level, anchor, text) for level, anchor, text in page.headings if level in (2, 3)]
    shown = [entry for at, entry in enumerate(shown) if at == 0 or entry[2] != shown[at - 1][2]]  # overloads
    if len(shown) > 32 and page.kind == "page":
        shown = [entry for entry in shown if entry[0] == 2]
    if len(shown) < 2:
        return ""
    entries = "".join(f'<li class="level{level}"><a href="#{anchor}">{html.escape(text)}</a></li>' for level, anchor, text in shown)
    return f'<nav class="contents" aria-label="On this page"><p>On this page</p><ul>{entries}</ul></nav>'


def neighbours(page, order):
    addresses = [entry.address for entry in order]
    if page.address not in addresses:
        return ""
    at = addresses.index(page.address)
    parts = []
    if at > 0:
        parts.append(f'<a class="before" href="{page.root}{order[at - 1].address}"><span>Before</span>{html.escape(order[at - 1].title)}</a>')
    if at + 1 < len(order):
        parts.append(f'<a class="after" href="{page.root}{order[at + 1].address}"><span>Next</span>{html.escape(order[at + 1].title)}</a>')
    return f'<nav class="neighbours" aria-label="Pages before and after">{"".join(parts)}</nav>' if parts else ""


def whole(page, groups, order, version):
    root = page.root
    scripts = "".join(f'<script defer src="{root}assets/{name}"></script>' for name in ["site.js", "search.js", *page.scripts])
    title = page.heading or page.title
    source = f'<p class="source">Made from <code>{html.escape(page.source)}</code> of version {version}.</p>' if page.source else ""
    side = contents(page)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="description" content="{html.escape(page.about or title)}">
<title>{html.escape(title)} · Accelerate for C++</title>
<link rel="icon" href="{root}assets/icon.svg">
<link rel="stylesheet" href="{root}assets/site.css">
<link rel="stylesheet" href="{root}assets/code.css">
<script src="{root}assets/theme.js"></script>
{scripts}
</head>
<body data-root="{root}" class="{page.kind}{"" if side else " wide"}">
<a class="skip" href="#main">Skip to the text</a>
<header class="bar">
  <button id="menu" type="button" aria-label="Pages" aria-expanded="false" aria-controls="pages">{BARS}</button>
  <a class="home" href="{root}index.html"><img src="{root}assets/icon.svg" alt="" width="26" height="26"><span>Accelerate <small>for C++</small></span></a>
  <button id="search-open" type="button" aria-haspopup="dialog">{LENS}<span>Search</span><kbd>/</kbd></button>
  <button id="theme" type="button" aria-label="Change between light and dark" title="Light or dark">{SUN}</button>
</header>
<dialog id="search" aria-label="Search">
  <form method="dialog"><label>{LENS}<span class="unseen">Search the pages, the API and the examples</span><input id="search-text" type="search" placeholder="Search pages, API, examples" autocomplete="off" spellcheck="false"></label><button type="submit" aria-label="Close">Esc</button></form>
  <ul id="search-results"></ul>
  <p id="search-state" role="status"></p>
</dialog>
<div class="columns">
<nav id="pages" aria-label="Pages">{navigation(groups, page)}</nav>
<main id="main" tabindex="-1">
<article>
{page.body}
</article>
{neighbours(page, order)}
{source}
</main>
{side}
</div>
</body>
</html>
"""

"""The API reference: a page for each public header, and an overview."""

import html
import re

from .api_names import Names
from .comments import Comments
from .examples import first_sentence
from .layout import Page
from .markdown import Section
from .site_map import address_of

WORDS = {"class": "class", "function": "function", "field": "constant", "type": "type", "enum": "enum", "macro": "macro", "concept": "concept"}


def anchor_of(name, taken):
    anchor = re.sub(r"[^\w:~]", "_", name)
    taken[anchor] = taken.get(anchor, 0) + 1
    return anchor if taken[anchor] == 1 else f"{anchor}.{taken[anchor]}"


def ended(entity):
    """A declaration with the semicolon that a body stands for."""
    return entity.text + (";" if entity.kind == "function" and not entity.text.endswith(";") else "")


def groups_of(entities):
    """Declarations that share one comment: those without one that follow without a blank line."""
    groups = []
    for entity in entities:
        follows = (groups and not entity.comment and entity.kind == groups[-1][-1].kind and entity.kind in ("function", "field", "type")
                   and entity.line <= groups[-1][-1].end + 1)
        if follows:
            groups[-1].append(entity)
        else:
            groups.append([entity])
    return groups


class ApiPages:
    def __init__(self, headers, areas, highlighter):
        self.headers, self.areas, self.highlighter = headers, areas, highlighter
        self.comments = Comments(highlighter)
        self.anchors = {}
        highlighter.names = Names()
        for header in headers.values():
            taken = {}
            for entity in header.entities:
                self.name(entity, header, taken)

    def name(self, entity, header, taken):
        if entity.kind == "note":
            return
        anchor = anchor_of(entity.qualified, taken)
        self.anchors[id(entity)] = anchor
        self.highlighter.names.add(entity, f"{self.address(header)}#{anchor}")
        for member in entity.members:
            self.name(member, header, taken)

    def address(self, header):
        return address_of(f"include/accelerate/{header.name}.h")

    def grouped(self):
        """(title, headers) in the order of the overview; headers that nobody has sorted in come last."""
        listed, result = set(), []
        for area in self.areas:
            present = [self.headers[name] for name in area["headers"] if name in self.headers]
            listed |= {header.name for header in present}
            result.append((area["title"], present))
        others = [header for name, header in self.headers.items() if name not in listed]
        return result + ([("Others", others)] if others else [])

    def pages(self):
        """The overview first."""
        overview = Page("api/index.html", "All headers", "API", "The public headers by what they are for.", "include/accelerate", kind="api")
        overview.heading = "API reference"
        parts = ["<h1>API reference</h1>",
                 "<p>Everything that programs may use is in the folder <code>include/accelerate</code>, one header for each idea; "
                 "<code>#include &lt;accelerate/accelerate.h&gt;</code> brings all of the library but notebooks, tokenizers and transformers. Names are in the "
                 "namespace <code>accelerate</code>. A comment says what a call does, which ranks make it and what holds after an error.</p>"]
        pages = []
        for title, headers in self.grouped():
            anchor = re.sub(r"\W+", "-", title.lower())
            overview.headings.append((2, anchor, title))
            rows = []
            for header in headers:
                page = self.page(header)
                pages.append(page)
                names = ", ".join(f'<a href="{overview.root}{page.address}#{html.escape(self.anchors[id(entity)])}"><code>{html.escape(entity.name)}</code></a>'
                                  for entity in self.main_names(header))
                rows.append(f'<tr><td><a href="{overview.root}{page.address}"><code>{html.escape(header.name)}.h</code></a></td>'
                            f"<td>{self.comments.inline(page.about, overview.root, None)}<br><small>{names}</small></td></tr>")
            parts.append(f'<h2 id="{anchor}">{html.escape(title)}</h2>\n<div class="table"><table class="headers"><tbody>{"".join(rows)}</tbody></table></div>')
        overview.body = "\n".join(parts)
        return [overview, *pages]

    def main_names(self, header):
        seen = {}
        for entity in header.entities:
            if entity.kind != "note":
                seen.setdefault(entity.name, entity)
        return list(seen.values())

    def page(self, header):
        page = Page(self.address(header), f"{header.name}.h", "API", first_sentence(" ".join(header.comment)),
                    f"include/accelerate/{header.name}.h", kind="api")
        page.heading = f"accelerate/{header.name}.h"
        parts = [f"<h1><code>{html.escape(page.heading)}</code></h1>",
                 self.highlighter.block(f"#include <accelerate/{header.name}.h>", "cpp", page.root),
                 f'<div class="about">{self.comments.html(header.comment, page.root)}</div>']
        page.sections.append(Section("", page.heading, " ".join(header.comment)))
        for group in groups_of(header.entities):
            parts.append(self.group(group, page, 2))
        page.body = "\n".join(parts)
        return page

    def group(self, group, page, level, outer=None):
        first = group[0]
        if first.kind == "note":
            return f'<div class="note">{self.comments.html(first.comment, page.root, outer)}</div>'
        names = list(dict.fromkeys(entity.name for entity in group))
        title = ", ".join(names)
        anchors = [self.anchors[id(entity)] for entity in group]
        if level == 2 or first.kind in ("function", "class", "enum"):
            page.headings += [(min(level, 3), self.anchors[id(entity)], entity.name) for at, entity in enumerate(group)
                              if entity.name not in [other.name for other in group[:at]]]
        for entity in group:
            words = " ".join(entity.comment or first.comment)
            shown = entity.qualified if entity.kind != "macro" else entity.name
            page.sections.append(Section(self.anchors[id(entity)], f"{shown}", words))
        marks = "".join(f'<span id="{html.escape(anchor)}"></span>' for anchor in anchors[1:])
        parts = [f'<section class="entity {first.kind} level{level}" id="{html.escape(anchors[0])}">{marks}']
        if level == 2 or first.kind == "class":
            word = "struct" if first.text.startswith("struct") else WORDS[first.kind]
            parts.append(f'<h{level}><span class="kind">{word}</span> <code>{html.escape(title)}</code>'
                         f'<a class="anchor" href="#{html.escape(anchors[0])}" aria-label="Link to {html.escape(title)}">#</a></h{level}>')
        if not re.fullmatch(r"(class|struct) [\w:]+( final)?", first.text):
            parts.append(self.highlighter.block("\n".join(ended(entity) for entity in group), "cpp", page.root))
        near = outer or (first.name if first.kind == "class" else None)
        if first.comment:
            parts.append(f'<div class="about">{self.comments.html(first.comment, page.root, near)}</div>')
        if first.members:
            parts.append('<div class="members">')
            parts += [self.group(members, page, min(level + 1, 4), first.name) for members in groups_of(first.members)]
            parts.append("</div>")
        parts.append("</section>")
        return "\n".join(parts)

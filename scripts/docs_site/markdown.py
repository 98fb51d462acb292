"""Markdown of docs/ as HTML: anchors as GitHub makes them, links that lead to pages of the site, highlighted code."""

import html
import re
import unicodedata
from dataclasses import dataclass, field

from markdown_it import MarkdownIt
from markdown_it.token import Token


@dataclass
class Section:
    """What the search finds: the text under one heading."""

    anchor: str
    heading: str
    text: str = ""


@dataclass
class Rendered:
    title: str
    body: str
    headings: list = field(default_factory=list)  # (level, anchor, text)
    sections: list = field(default_factory=list)


def slug_of(text, taken):
    """The anchor that GitHub gives to a heading."""
    text = unicodedata.normalize("NFC", text).lower()
    slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
    count = taken.get(slug, -1) + 1
    taken[slug] = count
    return slug if count == 0 else f"{slug}-{count}"


def plain_text(inline):
    """The text of an inline token without its marks."""
    return "".join(child.content if child.type in ("text", "code_inline") else " " if child.type in ("softbreak", "hardbreak") else
                   child.content if child.type == "image" else "" for child in inline.children or [])


class Renderer:
    """`places` (a SiteMap) knows where links lead; `highlighter` makes the HTML of code."""

    def __init__(self, places, highlighter):
        self.places = places
        self.highlighter = highlighter
        self.parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
        rules = {"fence": self.fence, "code_block": self.fence, "code_inline": self.code_inline, "image": self.image,
                 "html_block": self.html_block, "html_inline": self.html_block, "table_open": self.table_open,
                 "table_close": self.table_close, "heading_open": self.heading_open, "heading_close": self.heading_close}
        for name, rule in rules.items():
            self.parser.add_render_rule(name, lambda _, tokens, index, options, env, rule=rule: rule(tokens, index, env))

    def render(self, text, page, root=""):
        """`page` is what `resolve` gets to know where the text stands; `root` leads from the page to the top of the site."""
        tokens = self.parser.parse(text)
        found = Rendered(title="", body="")
        taken = {}
        section = Section("", "")
        found.sections.append(section)
        for index, token in enumerate(tokens):
            if token.type == "heading_open":
                heading = plain_text(tokens[index + 1])
                anchor = slug_of(heading, taken)
                level = int(token.tag[1])
                token.attrSet("id", anchor)
                if level == 1 and not found.title:
                    found.title = heading
                    section.heading = heading
                else:
                    found.headings.append((level, anchor, heading))
                    section = Section(anchor, heading)
                    found.sections.append(section)
            elif token.type == "inline":
                is_heading = tokens[index - 1].type == "heading_open"
                if not is_heading:
                    section.text += plain_text(token) + " "
                self.rewrite_links(token, page, is_heading)
            elif token.type == "fence":
                section.text += token.content + " "
        found.body = self.parser.renderer.render(pair_languages(tokens), self.parser.options, {"page": page, "root": root})
        return found

    def rewrite_links(self, inline, page, is_heading=False):
        depth = int(is_heading)  # code in links and headings gets no link of its own
        for place, child in enumerate(inline.children or []):
            if child.type == "link_open":
                target = child.attrGet("href")
                child.attrSet("href", self.places.resolve(target, page))
                depth += 1
                text = inline.children[place + 1]
                text.content = self.places.title_of(text.content, target, page)
            elif child.type == "link_close":
                depth -= 1
            elif child.type == "image":
                child.attrSet("src", self.places.resolve(child.attrGet("src"), page))
            elif child.type == "code_inline" and depth:
                child.meta["in_link"] = True

    # Rules of the renderer.

    def fence(self, tokens, index, env):
        language = (tokens[index].info.split() or [""])[0]
        before = None
        if any("changes" in marker for marker in markers_above(tokens, index)):
            before = next((token.content for token in reversed(tokens[:index]) if token.type == "fence" and token.info == language), None)
        return self.highlighter.block(tokens[index].content, language, env["root"], before)

    def code_inline(self, tokens, index, env):
        token = tokens[index]
        code = f"<code>{html.escape(token.content, quote=False)}</code>"
        if token.meta.get("in_link"):
            return code
        address = self.places.mentioned(token.content, env["page"])
        if address is None and self.highlighter.names is not None:
            address = self.highlighter.names.mentioned(token.content)
            address = address and env["root"] + address
        return f'<a class="name" href="{address}">{code}</a>' if address else code

    def image(self, tokens, index, env):
        token = tokens[index]
        source, text = html.escape(token.attrGet("src")), html.escape(token.content)
        return f'<a class="picture" href="{source}"><img src="{source}" alt="{text}"></a>'

    def html_block(self, tokens, index, env):
        text = re.sub(r"<!--.*?-->\n?", "", tokens[index].content, flags=re.S)
        return re.sub(r'\b(src|href)="([^"]*)"', lambda found: f'{found.group(1)}="{self.places.resolve(found.group(2), env["page"])}"', text)

    def table_open(self, tokens, index, env):
        return '<div class="table" tabindex="0" role="region" aria-label="Table">\n<table>\n'

    def table_close(self, tokens, index, env):
        return "</table>\n</div>\n"

    def heading_open(self, tokens, index, env):
        return f'<{tokens[index].tag} id="{tokens[index].attrGet("id")}">'

    def heading_close(self, tokens, index, env):
        opening = next(token for token in reversed(tokens[:index]) if token.type == "heading_open")
        anchor = opening.attrGet("id")
        link = "" if opening.tag == "h1" else f'<a class="anchor" href="#{anchor}" aria-label="Link to this part">#</a>'
        return f"{link}</{opening.tag}>\n"


def markers_above(tokens, index):
    """The HTML comments right above a block."""
    while index > 0 and tokens[index - 1].type == "html_block":
        index -= 1
        yield from re.findall(r"<!--\s*([\w-]+)\s*-->", tokens[index].content)


def pair_languages(tokens):
    """Puts a block of Python and the block of C++ after it side by side."""
    result = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        after = index + 1
        while after < len(tokens) and tokens[after].type == "html_block":
            after += 1
        if token.type == "fence" and token.info == "python" and after < len(tokens) and tokens[after].type == "fence" and tokens[after].info == "cpp":
            result += [raw('<div class="twins">\n'), token, tokens[after], raw("</div>\n")]
            index = after + 1
        else:
            result.append(token)
            index += 1
    return result


def raw(text):
    return Token("html_block", "", 0, content=text)

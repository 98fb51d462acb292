"""What the search of the site looks through: a script, since a page that was opened from a folder may load nothing else."""

import json
import re


def squeeze(text):
    return re.sub(r"\s+", " ", text).strip()


def script_of(pages):
    """One entry for each part of a page: address, page, heading, text, kind."""
    entries = []
    for page in pages:
        for section in page.sections:
            text = squeeze(section.text)
            if not text and section.anchor and page.kind == "page":
                continue
            address = page.address + (f"#{section.anchor}" if section.anchor else "")
            entries.append([address, page.heading or page.title, section.heading if section.anchor else "", text, page.kind])
    return "window.searchIndex = " + json.dumps(entries, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/") + ";\n"

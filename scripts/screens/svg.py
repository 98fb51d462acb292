"""A screen as a picture: a dark window with a title."""

from itertools import groupby
from xml.sax.saxutils import escape

FONT = "DejaVu Sans Mono, Menlo, Consolas, Liberation Mono, monospace"
CELL, LINE, MARGIN, BAR = 8.4, 19, 18, 34
LEAST_COLUMNS = 60
BACKGROUND, BAR_COLOUR, TEXT, TITLE = "#1b1f27", "#2a303b", "#d8dee9", "#9aa4b5"
COLOURS = (
    "#3b4252", "#ff7b72", "#7ee787", "#e3c370", "#79b8ff", "#d2a8ff", "#76e3ea", "#d8dee9",
    "#6e7681", "#ffa198", "#a5f3b0", "#f2d98f", "#a5d6ff", "#e2c5ff", "#b3f0f5", "#ffffff",
)  # fmt: skip


def number(value):
    return f"{value:.1f}".rstrip("0").rstrip(".")


def attributes(style):
    text = f' fill="{COLOURS[style.colour]}"' if style.colour is not None else ""
    if style.bold:
        text += ' font-weight="bold"'
    if style.dim:
        text += ' opacity="0.65"'
    return text


def runs_of(row):
    """(column, text, style) of each stretch of one style, blanks at the end left out."""
    column = 0
    for style, cells in groupby(row, key=lambda cell: cell[1]):
        text = "".join(character for character, _ in cells)
        if text.strip():
            yield column, text.rstrip(), style
        column += len(text)


def line_of(row, y):
    spans = []
    for column, text, style in runs_of(row):
        blank = len(text) - len(text.lstrip())
        text = text.lstrip()
        x = MARGIN + (column + blank) * CELL
        # The length keeps columns apart as the terminal does, whatever font is there.
        spans.append(
            f'<tspan x="{number(x)}" textLength="{number(len(text) * CELL)}"{attributes(style)}>{escape(text)}</tspan>'
        )
    return f'<text y="{number(y)}" xml:space="preserve">{"".join(spans)}</text>' if spans else ""


def svg_of(screen, title):
    rows = list(screen.rows)
    while rows and not any(character.strip() for character, _ in rows[-1]):
        rows.pop()
    columns = max([LEAST_COLUMNS, *(len(row) for row in rows)])
    width, height = 2 * MARGIN + columns * CELL, BAR + 2 * MARGIN + len(rows) * LINE
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(width)} {number(height)}" '
        f'width="{number(width)}" height="{number(height)}" font-family="{FONT}" font-size="14" fill="{TEXT}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
        f'<path d="M0 {BAR}V8a8 8 0 0 1 8-8H{number(width - 8)}a8 8 0 0 1 8 8V{BAR}z" fill="{BAR_COLOUR}"/>',
    ]
    for place, colour in enumerate(("#ff5f57", "#febc2e", "#28c840")):
        lines.append(f'<circle cx="{MARGIN + 20 * place}" cy="{BAR // 2}" r="6" fill="{colour}"/>')
    lines.append(f'<text x="{number(width / 2)}" y="22" text-anchor="middle" font-size="13" fill="{TITLE}">{escape(title)}</text>')
    for place, row in enumerate(rows):
        line = line_of(row, BAR + MARGIN + 14 + place * LINE)
        if line:
            lines.append(line)
    return "\n".join([*lines, "</svg>", ""])

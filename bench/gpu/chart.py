#!/usr/bin/env python3
"""Draws tokens a second of GPT-2 124M from kept figures as an SVG.

usage: chart.py FIGURES.json OUT.svg
"""
import json
import sys
from pathlib import Path

# Earlier measurements on one H200, see docs/performance.md: (who, batch, tokens a second). A star marks what was not
# measured in the same call.
OTHERS = [("llm.c*", 16, 517000), ("llm.c*", 32, 479000), ("llm.c*", 64, 486000)]
BAR, GAP, LEFT, WIDTH = 22, 8, 300, 460


def main():
    rows = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["rows"]
    figures = [(row["mode"] + ("*" if "measured" in row else ""), row["batch"], row["tokens_per_second"]) for row in rows
               if row["part"] == "gpt2" and "error" not in row]
    own = [(f"this library, {mode}", batch, speed) for mode, batch, speed in figures
           if mode.startswith(("fused", "captured"))]
    others = [(mode.replace("plain", "libtorch's operators, eager"), batch, speed) for mode, batch, speed in figures
              if mode == "plain" or mode.startswith("Python")]
    best = {}
    for who, batch, speed in own:
        if batch not in best or speed > best[batch][2]:
            best[batch] = (who, batch, speed)
    bars = sorted([*OTHERS, *others, *best.values()], key=lambda bar: (bar[1], bar[2]))
    most = max(speed for _, _, speed in bars)
    height = len(bars) * (BAR + GAP) + 50
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 110}" height="{height}" '
           'font-family="sans-serif" font-size="13">',
           f'<rect width="100%" height="100%" fill="white"/><text x="10" y="22" font-size="15">'
           "GPT-2 124M, bf16, T = 1024, one H200: tokens a second (* measured in another call)</text>"]
    for place, (who, batch, speed) in enumerate(bars):
        y = 40 + place * (BAR + GAP)
        colour = "#2a6fbb" if who.startswith("this") else "#b8b8b8"
        wide = WIDTH * speed / most
        out.append(f'<text x="{LEFT - 10}" y="{y + 15}" text-anchor="end">{who}{f", batch {batch}" if batch else ""}</text>'
                   f'<rect x="{LEFT}" y="{y}" width="{wide:.1f}" height="{BAR}" fill="{colour}"/>'
                   f'<text x="{LEFT + wide + 8:.1f}" y="{y + 15}">{speed:,.0f}</text>')
    Path(sys.argv[2]).write_text("\n".join([*out, "</svg>"]) + "\n", encoding="utf-8")


main()

#!/usr/bin/env python3
"""Draws the pictures of docs/data.md: which rank gets which samples, how a pass is resumed, and the stages of a loader.

usage: draw_data_pictures.py [folder of the documents]
"""

import sys
from pathlib import Path

FILLS = {  # what a cell is: background, border, text
    "rank0": ("#dbe8fa", "#4a78b8", "#1d2433"),
    "rank1": ("#dcf1e2", "#4b9460", "#1d2433"),
    "rank2": ("#fbe9c9", "#c08a2d", "#1d2433"),
    "order": ("#f1f1f3", "#8a8a94", "#1d2433"),
    "passed": ("#ffffff", "#d5d7dd", "#a6abb8"),
    "padding": ("#ffffff", "#c0392b", "#c0392b"),
}
CELL, HEIGHT, GAP = 29, 24, 13
STYLE = (".t{font-size:14px;font-weight:bold;fill:#1d2433}.s{font-size:12px;fill:#3a4254}"
         ".h{font-size:13px;fill:#6a7285}.c{font-size:13px;text-anchor:middle}"
         ".a{stroke:#59627a;stroke-width:1.6;fill:none}.d{stroke:#c0632d;stroke-width:2;stroke-dasharray:5 4;fill:none}")
MARKERS = ('<defs><marker id="m" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
           '<path d="M0 0L10 5L0 10z" fill="#59627a"/></marker><marker id="r" viewBox="0 0 10 10" refX="9" refY="5" '
           'markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L10 5L0 10z" fill="#c0632d"/></marker></defs>')


class Picture:
    def __init__(self, width, height):
        self.lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="DejaVu Sans, Verdana, sans-serif">',
            f"<style>{STYLE}</style>", MARKERS, f'<rect width="{width}" height="{height}" fill="#ffffff"/>']

    def text(self, x, y, text, kind="s"):
        self.lines.append(f'<text x="{x}" y="{y}" class="{kind}">{text}</text>')

    def cell(self, x, y, label, kind):
        fill, border, colour = FILLS[kind]
        dashes = ' stroke-dasharray="4 3"' if kind == "padding" else ""
        self.lines.append(f'<rect x="{x}" y="{y}" width="{CELL}" height="{HEIGHT}" rx="3" fill="{fill}" '
                          f'stroke="{border}" stroke-width="1.3"{dashes}/>')
        self.text(x + CELL / 2, y + 17, f'<tspan fill="{colour}">{label}</tspan>', "c")

    def batches(self, x, y, batches):
        """`batches`: lists of (label, kind). Returns where the last one ends."""
        for batch in batches:
            for label, kind in batch:
                self.cell(x, y, label, kind)
                x += CELL
            x += GAP
        return x - GAP

    def box(self, x, y, width, height, title, lines, colours):
        self.lines.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="{colours[0]}" '
                          f'stroke="{colours[1]}"/>')
        self.text(x + 12, y + 22, title, "t")
        for number, line in enumerate(lines):
            self.text(x + 12, y + 42 + 17 * number, line)

    def arrow(self, x1, y1, x2, y2, dashed=False):
        kind, marker = ("d", "r") if dashed else ("a", "m")
        self.lines.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{kind}" marker-end="url(#{marker})"/>')

    def write(self, path):
        path.write_text("\n".join([*self.lines, "</svg>"]) + "\n", encoding="utf-8")


def dealt(n, batch_size, world_size, rank, even=True, drop_last=False, split=False, start=0):
    """The batches of a rank by the rules of accelerate::BatchShard."""
    slots = batch_size // world_size if split else batch_size
    stride = slots * world_size
    batches = []
    for first in range(start, n, stride):
        if drop_last and first + stride > n:
            break
        mine = range(first + rank * slots, first + (rank + 1) * slots)
        batch = [(p % n, f"rank{rank}" if p < n else "padding") for p in mine if p < n or even]
        if batch:
            batches.append(batch)
    return batches


def dispatched(n, batch_size, world_size, rank):
    batches = []
    for first in range(0, n, batch_size * world_size):
        whole = [(p, f"rank{rank}") for p in range(first, min(n, first + batch_size * world_size))]
        whole += [(p, "padding") for p in range(-len(whole) % world_size)]
        rows = len(whole) // world_size
        batches.append(whole[rank * rows:(rank + 1) * rows])
    return batches


def streamed(n, batch_size, world_size, rank):
    """Every sample is read; those of other ranks are passed over."""
    batches = []
    for first, own in zip(range(0, n, batch_size * world_size), dealt(n, batch_size, world_size, rank)):
        row = [(p, f"rank{p // batch_size % world_size}") for p in range(first, min(n, first + batch_size * world_size))]
        row = [(p, kind if kind == f"rank{rank}" else "passed") for p, kind in row]
        batches.append(row + [cell for cell in own if cell[1] == "padding"])
    return batches


def varying(sizes, world_size, rank):
    whole, first = [], 0
    for size in sizes:
        whole.append(range(first, first + size))
        first += size
    count = -(-len(whole) // world_size) * world_size
    return [[(p, f"rank{rank}" if j < len(whole) else "padding") for p in whole[j % len(whole)]]
            for j in range(rank, count, world_size)]


def draw_shares(folder):
    n, b, ranks = 10, 2, range(2)
    modes = [
        ("as it is", ["a dataset; even_batches is on"], [dealt(n, b, 2, r) for r in ranks]),
        ("even_batches = false", ["rank 1 has a batch less:", "see join_uneven_inputs"],
         [dealt(n, b, 2, r, even=False) for r in ranks]),
        ("drop_last = true", ["full rounds only: 8 and 9 are left out"], [dealt(n, b, 2, r, drop_last=True) for r in ranks]),
        ("split_batches = true", ["batch_size counts for all ranks:", "each batch is cut in two"],
         [dealt(n, b, 2, r, split=True) for r in ranks]),
        ("dispatch_batches = true", ["rank 0 reads 4 at a time and cuts;", "the last batch is smaller, not padded"],
         [dispatched(n, b, 2, r) for r in ranks]),
        ("dispatch_batches, 9 samples", ["9 do not divide by 2:", "the first sample comes again"],
         [dispatched(9, b, 2, r) for r in ranks]),
        ("a stream", ["each rank reads all samples", "and keeps its own"], [streamed(n, b, 2, r) for r in ranks]),
        ("a batch sampler, sizes vary", ["sizes 3, 2, 1, 2, 2:", "ranks are dealt whole batches"],
         [varying([3, 2, 1, 2, 2], 2, r) for r in ranks]),
    ]
    step, top = 82, 112
    picture = Picture(980, top + step * len(modes) + 4)
    picture.text(20, 28, "10 samples, batch_size 2, 2 ranks: what each rank gets in one pass", "h")
    picture.text(20, 65, "order of the pass", "t")
    picture.batches(400, 48, [[(i, "order") for i in range(n)]])
    x = 720
    for kind, label, width in [("rank0", "rank 0", 78), ("rank1", "rank 1", 0)]:
        picture.cell(x, 14, "", kind)
        picture.text(x + 37, 31, label)
        x += 37 + width
    for x, kind, label in [(720, "padding", "padding: repeats the beginning"), (720, "passed", "read and passed over")]:
        y = 44 if kind == "padding" else 74
        picture.cell(x, y, "", kind)
        picture.text(x + 37, y + 17, label)
    for number, (title, lines, shares) in enumerate(modes):
        y = top + step * number
        picture.lines.append(f'<line x1="20" y1="{y}" x2="960" y2="{y}" stroke="#e3e5ea"/>')
        picture.text(20, y + 26, title, "t")
        for line, text in enumerate(lines):
            picture.text(20, y + 46 + 17 * line, text)
        for rank, batches in enumerate(shares):
            row = y + 10 + 32 * rank
            picture.text(338, row + 17, f"rank {rank}", "h")
            picture.batches(400, row, batches)
            count = f"{len(batches)} batch" + ("" if len(batches) == 1 else "es")
            picture.text(806, row + 17, count)
    picture.write(folder / "data_shares.svg")


def draw_resume(folder):
    n = 16
    picture = Picture(980, 296)
    picture.text(20, 28, "16 samples in the order of epoch 3; begun on 2 ranks with batch_size 2, continued on 3 ranks", "h")
    picture.text(20, 67, "order of the epoch", "t")
    order = [11, 4, 0, 9, 14, 2, 7, 13, 1, 6, 15, 3, 10, 5, 12, 8]
    picture.batches(200, 50, [[(i, "order") for i in order]])
    picture.text(200, 92, "position 0", "h")
    cut = 200 + 8 * CELL
    picture.lines.append(f'<line x1="{cut}" y1="40" x2="{cut}" y2="280" class="d"/>')
    picture.text(cut + 8, 92, "position 8: state_dict() = {seed, epoch 3, position 8, size 16}", "h")
    picture.text(20, 137, "2 ranks", "t")
    picture.text(20, 155, "2 batches each, then stopped")
    for rank in range(2):
        for k, batch in enumerate(dealt(n, 2, 2, rank)[:2]):
            for slot, (position, kind) in enumerate(batch):
                picture.cell(200 + CELL * (4 * k + 2 * rank + slot), 114 + 30 * rank, order[position], kind)
    picture.text(20, 207, "3 ranks", "t")
    picture.text(20, 225, "load_state_dict(), same epoch")
    for rank in range(3):
        for k, batch in enumerate(dealt(n, 2, 3, rank, start=8)):
            for slot, (position, kind) in enumerate(batch):
                picture.cell(cut + CELL * (6 * k + 2 * rank + slot), 184 + 30 * rank, order[position], kind)
    picture.text(cut + CELL * 12 + 18, 262, "padding, valid = 0")
    picture.write(folder / "data_resume.svg")


def draw_stages(folder):
    blue, amber, grey = ("#e8f0fb", "#4a78b8"), ("#fdf3e1", "#c08a2d"), ("#f1f1f3", "#8a8a94")
    picture = Picture(980, 330)
    picture.text(20, 28, "how a batch comes to the loop; each stage is one file, and those that are not needed are not there", "h")
    top, height, width, step = 46, 108, 164, 194
    stages = [
        ("plan", ["which samples batch k", "of this rank holds:", "a formula, no I/O"], blue),
        ("maker", ["draw: next in order", "build: read, collate,", "pinned for a GPU"], blue),
        ("workers", ["num_workers threads", "draw and build ahead,", "order is kept"], blue),
        ("dispatch", ["rank 0 cuts and sends,", "the others receive;", "only if asked for"], blue),
        ("place", ["one batch ahead to", "the GPU, on a stream", "of its own"], blue),
    ]
    for number, (title, lines, colours) in enumerate(stages):
        picture.box(20 + step * number, top, width, height, title, lines, colours)
        if number:
            picture.arrow(20 + step * number - 30, top + 54, 20 + step * number - 2, top + 54)
    picture.box(20, 206, 358, 100, "yours", ["sampler or batch_sampler: the order", "dataset: get() or get_batch(); or a stream",
                                             "collate, slice_fn_for_dispatch"], amber)
    picture.arrow(102, 204, 102, 156)
    picture.arrow(290, 204, 290, 156)
    picture.box(408, 206, 358, 100, "LoaderControl", ["epoch and position, shared by all handles", "moves when a batch is handed to the loop,",
                                                      "not when a worker has read it"], grey)
    picture.box(796, 206, 164, 100, "your loop", ["for (auto&amp; batch", "     : loader)"], amber)
    picture.arrow(878, 156, 878, 204)
    picture.arrow(794, 256, 768, 256)
    picture.write(folder / "data_stages.svg")


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "docs"
    draw_shares(folder)
    draw_resume(folder)
    draw_stages(folder)


if __name__ == "__main__":
    main()

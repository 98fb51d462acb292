#!/usr/bin/env python3
"""Runs one of the data examples on one process and on two, with small files made here, and reads what it prints."""
import array
import random
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "checks"))
from example_runs import expect, main  # noqa: E402


def check_resume(example, folder):
    # Begun on one number of processes, continued on others; 16 samples a batch and process.
    for number, stops in enumerate([[(1, None)], [(2, None)], [(2, 5), (1, None)], [(1, 7), (2, 3), (2, None)]]):
        place, used = folder / f"place{number}.pt", 0
        for processes, batches in stops:
            if batches is None:
                output = example.run(processes, place)
                expect(output == "each of 1000 numbers was seen once: yes\n", "each number is seen once")
            else:
                used += 16 * processes * batches
                output = example.run(processes, place, batches)
                expect(output == f"stopped at sample {used} of epoch 0\n", f"{used} samples are used up")


def check_streaming(example, folder):
    generator = random.Random(1)
    words = [["dull", "slow", "worst", "bad"], ["bright", "quick", "best", "good"]]
    lines = []
    for number in range(203):
        label = number % 2
        text = generator.choices(words[label] + ["the", "film", "was"], k=generator.randint(3, 12))
        lines.append(f"{label}\t{' '.join([words[label][0], *text])}\n")
    path = folder / "reviews.txt"
    path.write_text("".join(lines))
    for processes in (1, 2):
        found = re.findall(r"^epoch \d: (\d+) reviews, accuracy ([\d.]+)$", example.run(processes, path), re.MULTILINE)
        expect([count for count, _ in found] == ["203"] * 3, "three epochs, each review once in each")
        expect(float(found[-1][1]) > 0.95, "the reviews are told apart")


def check_tokens(example, folder):
    # Each token decides the next one, so the loss can fall to nearly nothing.
    tokens, token = array.array("H"), 1
    for _ in range(20_000):
        tokens.append(token)
        token = (5 * token + 3) % 256
    path = folder / "tokens.bin"
    if sys.byteorder == "big":
        tokens.byteswap()
    path.write_bytes(tokens.tobytes())
    for processes, batches in ((1, 78), (2, 39)):
        output = example.run(processes, path)
        expect(output.startswith(f"20000 tokens, 624 blocks, {batches} batches for each process\n"), "sizes")
        found = re.findall(r"^epoch \d: (\d+) blocks, loss ([\d.e-]+)$", output, re.MULTILINE)
        expect([count for count, _ in found] == ["624"] * 3, "three epochs, each block once in each")
        expect(float(found[-1][1]) < 0.5, "the loss falls")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(__doc__, globals(), Path(scratch))

#!/usr/bin/env python3
"""Trains a tiny GPT-2 on one process and on two, stops and goes on, and compares the losses."""
import argparse
import array
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "checks"))
from example_runs import environment_of_examples, launch_words  # noqa: E402

TINY = ["--layers", "2", "--heads", "2", "--width", "32", "--positions", "16", "--vocabulary", "64",
        "--warmup", "2", "--lr", "0.01", "--log_every", "1", "--total_tokens", "256"]


def write_tokens(path):
    """A walk with few choices at each token, in the file format of llm.c."""
    tokens, seed = array.array("H"), 1
    for _ in range(20000):
        seed = (1103515245 * seed + 12345) % 2**31
        previous = tokens[-1] if tokens else 0
        tokens.append((previous + 1 + 7 * ((seed >> 16) % 2)) % 64)
    header = [20240520, 1, len(tokens)] + [0] * 253
    path.write_bytes(struct.pack("<256i", *header) + tokens.tobytes())


def run(arguments, program, processes, *options):
    command = [str(program), *TINY, *map(str, options)]
    if processes > 1:
        command = [*launch_words(arguments.accelerate, processes), *command]
    print("$", *command, flush=True)
    result = subprocess.run(command, env=environment_of_examples(), timeout=200, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    print(result.stdout, result.stderr, sep="", flush=True)
    if result.returncode != 0:
        sys.exit(f"the example ended with {result.returncode}")
    losses = {int(step): float(loss) for step, loss in re.findall(r"step (\d+) loss ([\d.]+)", result.stdout)}
    return losses, result.stdout


def expect(condition, what):
    if not condition:
        sys.exit(f"failed: {what}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accelerate", required=True)
    parser.add_argument("--example", required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "tokens.bin"
        write_tokens(data)
        common = ["--data", data, "--steps", 40]
        refused = subprocess.run([arguments.example, "--data", str(data), "--log_every", "0"], text=True, timeout=60,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        expect(refused.returncode == 2 and "log_every" in refused.stderr, "an interval of 0 steps is refused")
        exact, _ = run(arguments, arguments.example, 1, *common, "--bf16", 0, "--batch", 8)
        expect(exact[40] < 0.45 * exact[1], "the loss falls")
        half, text = run(arguments, arguments.example, 1, *common, "--batch", 8, "--sample", 12)
        expect(all(abs(half[i] / exact[i] - 1) < 0.03 for i in exact), "bf16 follows float32")
        sampled = [int(token) for token in re.search(r"sample((?: \d+)+)", text)[1].split()]
        expect(len(sampled) == 13 and all(0 <= token < 64 for token in sampled), "12 tokens are drawn")
        two, _ = run(arguments, arguments.example, 2, *common, "--bf16", 0, "--batch", 4)
        # The same samples an update, shared by two: all six digits that are printed agree. Where half of them were left out
        # the first losses would part already.
        expect(sorted(two) == sorted(exact) and len(exact) == 40, "every step is printed")
        apart = {i: two[i] / exact[i] - 1 for i in exact}
        expect(all(abs(by) < 1e-4 for by in apart.values()), f"two processes train like one, not {apart}")
        saved = Path(folder) / "checkpoint"
        stopped = ["--data", data, "--bf16", 0, "--batch", 8, "--save_every", 4, "--checkpoint", saved]
        whole, _ = run(arguments, arguments.example, 1, "--steps", 40, *stopped[:-2])
        # A constant schedule would hide a lost step count: the length stays the same.
        first, _ = run(arguments, arguments.example, 1, "--steps", 40, "--stop", 15, *stopped)
        rest, _ = run(arguments, arguments.example, 1, "--steps", 40, *stopped)
        expect(sorted([*first, *rest]) == sorted(whole), "it goes on where it stopped")
        expect(all(abs({**first, **rest}[i] - whole[i]) < 1e-4 for i in whole), "the losses are those of one run")


main()

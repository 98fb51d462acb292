#!/usr/bin/env python3
"""Runs one of the data examples on one process and on two, with small files made here, and reads what it prints."""
import argparse
import array
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path


class Example:
    def __init__(self, accelerate, program):
        self.accelerate, self.program = accelerate, program

    def run(self, processes, *arguments):
        """What the example prints; any other end than 0 ends the check."""
        command = [self.program, *map(str, arguments)]
        if processes > 1:
            command = [self.accelerate, "launch", "--cpu", "--num_processes", str(processes), *command]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
        print("$", *command, flush=True)
        result = subprocess.run(command, env=environment, timeout=120, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        print(result.stdout, result.stderr, sep="", flush=True)
        if result.returncode != 0:
            sys.exit(f"the example ended with {result.returncode}")
        return result.stdout


def expect(condition, what):
    if not condition:
        sys.exit(f"failed: {what}")


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


def main():
    checks = {"resume": check_resume, "streaming": check_streaming, "tokens": check_tokens}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=checks)
    parser.add_argument("--accelerate", required=True, help="the launcher")
    parser.add_argument("--example", required=True, help="the program")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        checks[arguments.name](Example(arguments.accelerate, arguments.example), Path(folder))


if __name__ == "__main__":
    main()

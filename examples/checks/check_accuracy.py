#!/usr/bin/env python3
"""Trains the Fashion-MNIST example on two processes and on one with twice the batch.

Both must reach the accuracy that the example promises, and they must agree: two ranks that average
their gradients are one process with the double batch. Ends with 77 (skipped) without the images.
"""
import argparse
import os
import re
import subprocess
import sys
import time

LEAST_ACCURACY = 0.88
LARGEST_DIFFERENCE = 0.01
SKIPPED = 77


def accuracy_of(command, environment):
    """Runs `command` and returns the accuracy that it prints, exactly once."""
    started = time.monotonic()
    print("$", *command, flush=True)
    result = subprocess.run(command, env={**os.environ, **environment}, timeout=1200,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    print(result.stderr, result.stdout, f"status {result.returncode}, "
          f"{time.monotonic() - started:.1f} s", sep="", flush=True)
    if result.returncode != 0:
        sys.exit("the example failed")
    found = re.findall(r"^test accuracy ([0-9.]+)$", result.stdout, re.MULTILINE)
    if len(found) != 1:
        sys.exit(f"expected one line 'test accuracy ...', found {len(found)}")
    return float(found[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--accelerate", required=True, help="the launcher")
    parser.add_argument("--example", required=True, help="the program fashion_mnist")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    arguments = parser.parse_args()
    if not os.path.isdir(arguments.data):
        print(f"{arguments.data} is missing: install the Debian package dataset-fashion-mnist")
        sys.exit(SKIPPED)

    options = ["--epochs", "2", "--data", arguments.data]
    two = accuracy_of([arguments.accelerate, "launch", "--cpu", "--num_processes", "2",
                       arguments.example, "--batch_size", "64", *options], {})
    one = accuracy_of([arguments.example, "--batch_size", "128", *options],
                      {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
    difference = abs(two - one)
    print(f"two processes {two}, one with twice the batch {one}, difference {difference:.4f}")
    if min(two, one) < LEAST_ACCURACY:
        sys.exit(f"the accuracy is below {LEAST_ACCURACY}")
    if difference > LARGEST_DIFFERENCE:
        sys.exit(f"the difference is above {LARGEST_DIFFERENCE}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares programs of plain libtorch with their ports: by what they print, on one process and on two, and by their lines."""
import argparse
import difflib
import re
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "examples" / "checks"))
from example_runs import Example, expect  # noqa: E402

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")

# The port updates parameters by fused kernels, which round the last place of a float32 (1e-7) differently; over the few dozen
# updates of these programs that stays far below this.
SAME_PROGRAM = 1e-5
# Two ranks add up the same gradients in another order: each half of a batch by itself, then the two.
SAME_BATCHES = 1e-4


class Port:
    def __init__(self, name, launcher, programs):
        self.programs = {version: Example(launcher, f"{programs}/port_{name}_{version}")
                         for version in ("before", "after", "in_step")}

    def run(self, version, processes, *arguments):
        return self.programs[version].run(processes, *arguments).splitlines()

    def run_in_folder(self, version, processes, *arguments):
        """The same for programs that write checkpoints."""
        with tempfile.TemporaryDirectory() as folder:
            return self.run(version, processes, folder, *arguments)


def numbers(line):
    return [float(number) for number in NUMBER.findall(line)]


def expect_alike(one, other, tolerance, what):
    """The same words, and numbers that differ by at most `tolerance` of the larger one."""
    expect(one and len(one) == len(other), f"{what}: {len(one)} and {len(other)} lines")
    for a, b in zip(one, other):
        alike = NUMBER.sub("#", a) == NUMBER.sub("#", b) and all(
            abs(x - y) <= tolerance * max(abs(x), abs(y)) for x, y in zip(numbers(a), numbers(b), strict=True))
        expect(alike, f"{what}:\n  {a}\n  {b}")


def check_convnet(port):
    one = port.run("after", 1, 64)
    expect_alike(port.run("before", 1, 64), one, SAME_PROGRAM, "before and after")
    expect_alike(one, port.run("after", 2, 32), SAME_BATCHES, "one process and two, each with half the batch")
    expect(numbers(one[-1])[-1] > 0.8, "the bars are told apart")


def check_regression(port):
    one = port.run("after", 1, 32)
    expect_alike(port.run("before", 1, 32), one, SAME_PROGRAM, "before and after")
    expect_alike(one, port.run("after", 2, 16), SAME_BATCHES, "one process and two, each with half the batch")
    expect(20 < numbers(one[-2])[0] < 200, "it stops early, not at once")


def check_custom_dataset(port):
    one = port.run("after", 1)
    # torch's loader draws its order from the global generator, ours depends on seed and epoch alone: the losses differ.
    for lines in (port.run("before", 1), one):
        expect(numbers(lines[-1])[1] < 0.05, "the pictures are told apart")
    expect_alike(one, port.run("after", 2), SAME_BATCHES, "one process and two that split the batch")


def check_stateful_lstm(port):
    one = port.run("after", 1)
    expect_alike(port.run("before", 1), one, SAME_PROGRAM, "before and after")
    expect_alike(one, port.run("after", 2), SAME_BATCHES, "one process and two, each with half the series")
    expect([numbers(line)[2] for line in one] == [0.02, 0.01, 0.005, 0.0025], "the rate is halved every 12 updates")


def check_draws(port, first_resumed_line, checkpoint, values):
    """A program that draws in its loop and prints, on each line with a loss, `values` numbers of every rank."""
    def of_ranks(line):
        found = numbers(line)[-2 * values:]
        return found[:values], found[values:]

    expect_alike(port.run_in_folder("before", 1), port.run_in_folder("after", 1), SAME_PROGRAM, "before and after")
    with tempfile.TemporaryDirectory() as folder:
        whole = port.run("after", 2, folder, 7)
        for line in whole:
            if "estimate" in line:
                continue
            first, second = of_ranks(line)
            expect(all(a != b for a, b in zip(first, second, strict=True)), f"the ranks draw their own numbers: {line}")
        resumed = port.run("after", 2, folder, 7, checkpoint)
    expect(resumed[0].startswith(first_resumed_line) and resumed == whole[-len(resumed):],
           "a resume goes on with the same numbers, to the last digit")
    expect(port.run_in_folder("after", 2, 7) == whole, "a seed gives the same numbers again")
    expect(port.run_in_folder("after", 2, 8) != whole, "another seed gives others")


def check_gan(port):
    check_draws(port, "epoch 1 batch 6 ", 1, 3)  # the checkpoint is made inside of a window
    lines = port.run_in_folder("in_step", 2)
    expect(lines, "the GAN with rng_types prints its steps")
    for line in lines:
        found = numbers(line)[-6:]
        expect(found[1:3] == found[4:6], f"with rng_types the ranks draw the same noise: {line}")
        expect(found[0] != found[3], "but see different pictures")


def check_actor_critic(port):
    check_draws(port, "round 4 ", 3, 2)


def check_char_model(port):
    check_draws(port, "iteration 21 ", 20, 1)


def changed_lines(port):
    """Lines of after.cpp that were added or altered, without blank ones, and lines of before.cpp. Removed ones do not count."""
    before, after = ([line for line in (HERE / port / version).read_text().splitlines() if line.strip()]
                     for version in ("before.cpp", "after.cpp"))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return sum(end - begin for what, _, _, begin, end in matcher.get_opcodes() if what != "equal"), len(before)


def check_changed_lines(page):
    """The table of the page says how many lines each port has changed."""
    told = {name: (int(changed), int(lines))
            for name, changed, lines in re.findall(r"^\| `(\w+)` \| (\d+) of (\d+) \|", page.read_text(), re.MULTILINE)}
    found = {source.parent.name: changed_lines(source.parent.name) for source in HERE.glob("*/before.cpp")}
    print(*(f"| `{name}` | {changed} of {lines} |" for name, (changed, lines) in found.items()), sep="\n")
    expect(told == found, f"{page} tells what is above")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="a port, or changed_lines")
    parser.add_argument("--accelerate", help="the launcher")
    parser.add_argument("--programs", help="the folder of the programs")
    parser.add_argument("--page", type=Path, help="the page with the table of changed lines")
    arguments = parser.parse_args()
    if arguments.name == "changed_lines":
        check_changed_lines(arguments.page)
    else:
        globals()[f"check_{arguments.name}"](Port(arguments.name, arguments.accelerate, arguments.programs))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Runs the benchmarks and prints each figure as a ratio of two things measured in the same run.

usage: bench/run.py [--build DIR] [--only PART] [--json FILE] [--without-python] [--quick]

The Python peer is installed into an environment of its own on first use (scripts/install_python_peer.sh). A goal that
is missed is printed as such and is no failure; a wrong answer is one, and stops the run. See docs/benchmarks.md.
"""

import argparse
import itertools
import json
import os
import pathlib
import platform
import shlex
import statistics
import sys
import tempfile

import calls_figures
import checkpoint_figures
import data_figures
import launch_figures
import profile_figures
import tokenizer_figures
import tracking_figures
import transformers_figures
from measuring import ROOT, WrongAnswer, quantile, run, seconds_text

PEER = ROOT / ".deps" / "python-peer"
# C++ and Python sum in different orders in places: losses agree to this.
LOSS_TOLERANCE = 1e-4
PARTS = ("version", "start", "launch", "loop", "calls", "optim", "ddp_in_turns", "ddp_alone", "data", "checkpoint", "tokenizers", "tracking", "profile", "transformers")
# Above this load of the last minute the machine has other work to do.
BUSY_LOAD = 0.7


def say(text):
    print(text, file=sys.stderr, flush=True)


def shown(command):
    """The command as it is typed in the root of the project."""
    return shlex.join(os.path.relpath(word, ROOT) if str(word).startswith(str(ROOT)) else str(word) for word in command)


def machine():
    model = "unknown processor"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "load_before": os.getloadavg()[0],
    }


class Bench:
    def __init__(self, args):
        self.bin = args.build.resolve() / "bin"
        self.peer = PEER
        self.quick = args.quick
        self.with_python = not args.without_python
        self.figures = []
        self.two_ranks = [self.bin / "accelerate", "launch", "--cpu", "--num_processes", "2"]
        # On a free port: other runs may be on the machine.
        self.torchrun = [PEER / "bin" / "torchrun", "--standalone", "--nproc_per_node", "2"]

    def add(self, **figure):
        """One figure: what, ours, peer, ratio, goal, met (None: no verdict), commands and details."""
        self.figures.append(figure)
        say(f"  {figure['what']}: {figure['ratio_text']}  [{verdict(figure) or 'no goal'}]")

    def add_under(self, limit, value, **figure):
        """A figure of ours alone, which has a limit and no peer: what, ours, ratio_text, goal, commands and details."""
        self.add(peer="", peer_name="", ratio=value, met=value < limit, **figure)

    def program(self, command):
        """Runs one of our programs, which writes its results to a file."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "results.json"
            run(command + ["--json", path])
            return json.loads(path.read_text())

    def output(self, command):
        """Standard output of a command."""
        return run(command)[0]

    def shown(self, command):
        return shown(command)

    def require(self, holds, otherwise):
        if not holds:
            raise WrongAnswer(otherwise)

    # --- a prepared loop against a hand-written one, in one process ---------------------------------------------------

    def loop(self):
        for optimizer in ("sgd", "adamw"):
            command = [self.bin / "bench_loop", "--optimizer", optimizer]
            if self.quick:
                command += ["--rounds", 3, "--pairs", 10]
            results = self.program(command)
            pair = results["prepared_against_hand"]
            noise = results["hand_against_hand"]["time_ratio"]
            self.add(
                what=f"loop, 1 process, {optimizer}",
                ours=step_text(pair["tested"]),
                peer=step_text(pair["reference"]),
                peer_name="libtorch by hand",
                ratio=pair["time_ratio"],
                ratio_text=f"{pair['time_ratio']:.3f} of its time (by hand against itself {noise:.3f})",
                goal="at most 1.02",
                met=pair["time_ratio"] <= 1.02,
                commands=[shown(command)],
                details=results,
            )

    # --- updates and clipping of 100 tensors --------------------------------------------------------------------------

    def optim(self):
        command = [self.bin / "bench_optim"]
        if self.quick:
            command += ["--rounds", 2, "--pairs", 10]
        results = self.program(command)
        for key, what, goal in (
            ("adamw", "AdamW step, 100 tensors", 3),
            ("clip_that_scales", "clip_grad_norm_ that scales, 100 tensors", 2),
            ("clip_within_bounds", "clip_grad_norm_ within bounds, 100 tensors", 2),
        ):
            pair = results[key]
            speed = 1 / pair["time_ratio"]
            self.add(
                what=what,
                ours=step_text(pair["tested"]),
                peer=step_text(pair["reference"]),
                peer_name="libtorch's own",
                ratio=speed,
                ratio_text=f"{speed:.1f} times as fast",
                goal=f"at least {goal}",
                met=speed >= goal,
                commands=[shown(command)],
                details=results,
            )
        self.optim_against_python(command)

    def optim_against_python(self, command):
        parts = (("adamw", "AdamW step, 100 tensors", "fused AdamW"), ("clip_that_scales", "clip_grad_norm_", "clip"))
        python = [PEER / "bin" / "python", ROOT / "bench" / "python_peer" / "optim_loop.py"]
        python += ["--steps", 100 if self.quick else 300]
        if not self.with_python:
            for _, what, name in parts:
                self.skip(f"{what}, against Python's {name}", "Python", "at least 1.0")
            return
        ours, theirs = [], []
        for _ in range(2 if self.quick else 6):
            ours.append(self.program(command))
            theirs.append(json.loads(run(python)[0]))
        for key, what, name in parts:
            own_runs = [{"step": result[key]["tested"]} for result in ours]
            peer_runs = [{"step": result[key]} for result in theirs]
            speed = median_step(peer_runs) / median_step(own_runs)
            self.add(
                what=f"{what}, against Python's {name}",
                ours=runs_text(own_runs),
                peer=runs_text(peer_runs),
                peer_name="Python",
                ratio=speed,
                ratio_text=f"{speed:.2f} of its speed",
                goal="at least 1.0",
                met=speed >= 1.0,
                commands=[shown(command), shown(python)],
                details={"ours": ours, "peer": theirs},
            )

    # --- data-parallel training on two ranks --------------------------------------------------------------------------

    def ddp_in_turns(self):
        for hidden, optimizer in ((512, "sgd"), (512, "adamw"), (2048, "sgd")):
            command = self.two_ranks + [self.bin / "bench_ddp", "--hidden", hidden, "--optimizer", optimizer]
            if self.quick or hidden > 512:
                command += ["--rounds", 3, "--pairs", 10]
            results = self.program(command)
            pair = results["prepared_against_hand"]
            speed = 1 / pair["time_ratio"]
            noise = 1 / results["hand_against_hand"]["time_ratio"]
            self.add(
                what=f"DDP, 2 ranks, 784-{hidden}-{hidden}-10, {optimizer}, in turns",
                ours=step_text(pair["tested"]),
                peer=step_text(pair["reference"]),
                peer_name="Reducer by hand",
                ratio=speed,
                ratio_text=f"{speed:.3f} of its speed (by hand against itself {noise:.3f})",
                goal="at least 0.98",
                met=speed >= 0.98,
                commands=[shown(command)],
                details=results,
            )

    def ddp_alone(self):
        """Each loop in processes of its own, round after round: ours, by hand, Python."""
        for optimizer in ("sgd", "adamw"):
            task = ["--optimizer", optimizer, "--steps", 100 if self.quick else 300]
            ours = self.two_ranks + [self.bin / "bench_ddp", "--loop", "prepared", *task]
            hand = self.two_ranks + [self.bin / "bench_ddp", "--loop", "hand", *task]
            python = self.torchrun + [ROOT / "bench" / "python_peer" / "ddp_loop.py", *task]
            runs = {"ours": [], "hand": [], "python": []}
            takers = {
                "ours": lambda: self.program(ours),
                "hand": lambda: self.program(hand),
                "python": lambda: json.loads(run(python)[0]),
            }
            if not self.with_python:
                del takers["python"]
            orders = list(itertools.permutations(takers))  # who follows whom changes
            for order in orders[:2] if self.quick else (orders * 3)[:6]:
                for kind in order:
                    runs[kind].append(takers[kind]())
            self.require_equal_losses(runs)
            for kind, name, command, goal in (
                ("hand", "Reducer by hand", hand, 0.98),
                ("python", "Python's DDP", python, 1.0),
            ):
                what = f"DDP, 2 ranks, 784-512-512-10, {optimizer}, against {name}"
                if not runs[kind]:
                    self.skip(what, name, f"at least {goal}")
                    continue
                speed = median_step(runs[kind]) / median_step(runs["ours"])
                self.add(
                    what=what,
                    ours=runs_text(runs["ours"]),
                    peer=runs_text(runs[kind]),
                    peer_name=name,
                    ratio=speed,
                    ratio_text=f"{speed:.3f} of its speed",
                    goal=f"at least {goal}",
                    met=speed >= goal,
                    commands=[shown(ours), shown(command)],
                    details={"ours": runs["ours"], "peer": runs[kind]},
                )

    def require_equal_losses(self, runs):
        expected = runs["ours"][0]["loss_after_warm_up"]
        for kind, results in runs.items():
            for result in results:
                if abs(result["loss_after_warm_up"] - expected) > LOSS_TOLERANCE:
                    raise WrongAnswer(f"{kind} came to loss {result['loss_after_warm_up']}, ours to {expected}")

    # --- start ----------------------------------------------------------------------------------------------------

    def start(self):
        ours = self.two_ranks + [self.bin / "bench_start"]
        python = self.torchrun + [ROOT / "bench" / "python_peer" / "make_accelerator.py"]
        times = {"ours": [], "python": []}
        self.start_once(ours)  # brings the files into memory
        if self.with_python:
            self.start_once(python)
        for _ in range(3 if self.quick else 7):
            for _ in range(3):
                times["ours"].append(self.start_once(ours))
            if self.with_python:
                times["python"].append(self.start_once(python))
        own = quantile(times["ours"], 0.5)
        common = {"ours": seconds_text(times["ours"]), "details": times}
        self.add_under(
            1.5,
            own,
            what="launch of 2 ranks that make an Accelerator and leave",
            ratio_text=f"{own:.3f} s",
            goal="under 1.5 s",
            commands=[shown(ours)],
            **common,
        )
        what = "the same against Python (torchrun)"
        if not self.with_python:
            self.skip(what, "Python", "at least 10")
            return
        speed = quantile(times["python"], 0.5) / own
        self.add(
            what=what,
            peer=seconds_text(times["python"]),
            peer_name="Python",
            ratio=speed,
            ratio_text=f"{speed:.1f} times faster",
            goal="at least 10",
            met=speed >= 10,
            commands=[shown(ours), shown(python)],
            **common,
        )

    def start_once(self, command):
        output, seconds = run(command)
        if sorted(output.split("\n")) != ["", "rank 0 of 2", "rank 1 of 2"]:
            raise WrongAnswer(f"{shown(command)} printed {output!r}")
        return seconds

    def version(self):
        command = [self.bin / "accelerate", "--version"]
        times = []
        for _ in range(50):
            output, seconds = run(command)
            if not output.startswith("accelerate "):
                raise WrongAnswer(f"{shown(command)} printed {output!r}")
            times.append(seconds)
        own = quantile(times, 0.5)
        self.add_under(
            0.020,
            own,
            what="accelerate --version",
            ours=seconds_text(times),
            ratio_text=f"{1e3 * own:.1f} ms",
            goal="under 20 ms",
            commands=[shown(command)],
            details=times,
        )

    # --- the program accelerate ---------------------------------------------------------------------------------------

    def launch(self):
        launch_figures.measure(self)

    # --- the data loader ----------------------------------------------------------------------------------------------

    def calls(self):
        calls_figures.measure(self)

    def tracking(self):
        tracking_figures.measure(self)

    def profile(self):
        profile_figures.measure(self)

    def data(self):
        data_figures.measure(self)

    # --- saved models -------------------------------------------------------------------------------------------------

    def checkpoint(self):
        checkpoint_figures.measure(self)

    # --- texts to ids -------------------------------------------------------------------------------------------------

    def tokenizers(self):
        tokenizer_figures.measure(self)

    # --- transformer models -------------------------------------------------------------------------------------------

    def transformers(self):
        transformers_figures.measure(self)

    def skip(self, what, peer_name, goal):
        self.add(
            what=what, ours="", peer="", peer_name=peer_name, ratio=None, ratio_text="not measured", goal=goal, met=None,
            commands=[], details={"skipped": "--without-python"},
        )  # fmt: skip


def verdict(figure):
    if figure["met"] is None:
        return "skipped" if figure["ratio"] is None else ""
    return "met" if figure["met"] else "MISSED"


def step_text(step):
    return f"p50 {step['p50_us'] / 1e3:.2f} ms, p99 {step['p99_us'] / 1e3:.2f} ms"


def median_step(runs):
    return statistics.median(run["step"]["p50_us"] for run in runs)


def runs_text(runs):
    p99 = statistics.median(run["step"]["p99_us"] for run in runs)
    return step_text({"p50_us": median_step(runs), "p99_us": p99})


def print_table(figures):
    head = ("what", "ours", "peer", "result", "goal", "")
    rows = [
        (
            figure["what"],
            figure["ours"],
            f"{figure['peer_name']}: {figure['peer']}" if figure["peer"] else figure["peer_name"],
            figure["ratio_text"],
            figure["goal"],
            verdict(figure),
        )
        for figure in figures
    ]
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    for row in [head, tuple("-" * width for width in widths), *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="build folder [build]")
    parser.add_argument("--only", action="append", choices=PARTS, help="run this part alone; may be repeated")
    parser.add_argument("--json", type=pathlib.Path, help="write all that was measured to this file")
    parser.add_argument("--without-python", action="store_true", help="leave out what needs the Python peer")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: shows that it runs, proves little")
    args = parser.parse_args()

    if not args.without_python:
        run([ROOT / "scripts" / "install_python_peer.sh", PEER])
    host = machine()
    say(f"{host['processor']}, {host['cores']} cores, {host['system']}, load {host['load_before']:.2f}")
    if host["load_before"] > BUSY_LOAD:
        say("warning: this machine is busy with other work; ratios will be noisy")
    bench = Bench(args)
    try:
        for part in args.only or PARTS:
            getattr(bench, part)()
    except WrongAnswer as error:
        say(f"wrong answer: {error}")
        return 1
    host["load_after"] = os.getloadavg()[0]

    print(
        f"machine: {host['processor']}, {host['cores']} cores, {host['system']}, "
        f"load {host['load_before']:.2f} before, {host['load_after']:.2f} after"
    )
    print_table(bench.figures)
    print("commands:")
    for command in dict.fromkeys(command for figure in bench.figures for command in figure["commands"]):
        print(f"  {command}")
    if args.json:
        document = {"command": shlex.join(sys.argv), "machine": host, "figures": bench.figures}
        args.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0


sys.exit(main())

"""The figures of transformer models, for run.py: `bench` is its Bench."""

import json
import os
import pathlib
import statistics
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEER_SCRIPT = ROOT / "bench" / "python_peer" / "transformers_speed.py"
MINILM = ROOT / ".deps" / "minilm"
PEER_NAME = "Python's transformers"


def measure(bench):
    if not bench.with_python:
        for what, goal in (("loading MiniLM", 5), ("fine-tuning MiniLM", 1.1), ("generating 128 tokens", 1.5)):
            bench.skip(what, PEER_NAME, f"at least {goal}")
        return
    bench.require(MINILM.is_dir(), f"{MINILM} is missing: scripts/fetch_minilm.sh fetches it")
    with tempfile.TemporaryDirectory(dir=bench.bin.parent) as folder:
        load(bench)
        classifier = pathlib.Path(folder) / "classifier"
        bench.output(python_command(bench, "make", "--folder", classifier, "--from", MINILM))
        writer = pathlib.Path(folder) / "gpt2"
        bench.output(python_command(bench, "make", "--folder", writer))
        for threads in dict.fromkeys((1, os.cpu_count())):
            finetune(bench, classifier, threads)
            generate(bench, writer, threads)


def own_command(bench, *words):
    return [bench.bin / "bench_transformers", *words]


def python_command(bench, *words):
    return [bench.peer / "bin" / "python", PEER_SCRIPT, *words]


def in_turns(bench, ours, python):
    """Answers and seconds of whole programs, beginning with another one each time."""
    runs = {"ours": [], "python": []}
    commands = {"ours": ours, "python": python}
    for number in range(1 if bench.quick else 3):
        for kind in list(commands) if number % 2 == 0 else list(reversed(commands)):
            start = time.perf_counter()
            answer = json.loads(bench.output(commands[kind]).splitlines()[-1])
            runs[kind].append({**answer, "seconds": time.perf_counter() - start})
    return runs


def median(runs, key):
    return statistics.median(run[key] for run in runs)


def compare(bench, what, runs, key, goal, text, commands):
    own, peer = median(runs["ours"], key), median(runs["python"], key)
    bench.add(
        what=what,
        ours=text(own),
        peer=text(peer),
        peer_name=PEER_NAME,
        ratio=peer / own,
        ratio_text=f"{peer / own:.2f} times as good",
        goal=f"at least {goal}",
        met=peer / own >= goal,
        commands=[bench.shown(command) for command in commands],
        details=runs,
    )


def load(bench):
    options = ["--folder", MINILM, "--threads", os.cpu_count()]
    commands = own_command(bench, "load", *options), python_command(bench, "load", *options)
    for command in commands:  # brings the files into memory
        bench.output(command)
    runs = in_turns(bench, *commands)
    expected = runs["python"][0]["sum"]
    for run in runs["ours"]:
        bench.require(abs(run["sum"] / expected - 1) < 1e-6, f"parameters sum up to {run['sum']}, Python's to {expected}")
    compare(bench, "loading MiniLM, with the start of the program", runs, "seconds", 5, lambda s: f"{s:.2f} s", commands)
    compare(
        bench, "memory peak of loading MiniLM", runs, "peak_megabytes", 2, lambda size: f"{size:.0f} MB", commands
    )  # fmt: skip


def finetune(bench, folder, threads):
    options = ["--folder", folder, "--threads", threads, "--steps", 5 if bench.quick else 20]
    commands = own_command(bench, "finetune", *options), python_command(bench, "finetune", *options)
    runs = in_turns(bench, *commands)
    expected = runs["python"][0]["loss"]
    for run in runs["ours"]:
        bench.require(abs(run["loss"] - expected) < 1e-4, f"the first loss is {run['loss']}, Python's {expected}")
    what = f"fine-tuning MiniLM, batch 16 of 64 tokens, {threads} thread{'s' if threads > 1 else ''}, a step"
    compare(bench, what, runs, "step_ms", 1.1, lambda ms: f"{ms:.1f} ms", commands)


def generate(bench, folder, threads):
    options = ["--folder", folder, "--threads", threads, "--steps", 2 if bench.quick else 5]
    commands = own_command(bench, "generate", *options), python_command(bench, "generate", *options)
    runs = in_turns(bench, *commands)
    for run in runs["ours"]:
        bench.require(run["tokens"] == runs["python"][0]["tokens"], "other tokens than Python's were generated")
    what = f"generating 128 tokens, GPT-2 of 6 layers 384 wide, {threads} thread{'s' if threads > 1 else ''}"
    compare(bench, what, runs, "generate_ms", 1.5, lambda ms: f"{ms:.0f} ms", commands)

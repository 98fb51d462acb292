"""The figures of saved models, for run.py: `bench` is its Bench."""

import json
import pathlib
import statistics
import tempfile

PEER_SCRIPT = pathlib.Path(__file__).resolve().parent / "python_peer" / "checkpoint_io.py"


def measure(bench):
    # Beside the program, not in a folder that may be memory.
    with tempfile.TemporaryDirectory(dir=bench.bin.parent) as folder:
        size = ["--megabytes", 100 if bench.quick else 1000]
        save(bench, folder, size)
        load(bench, folder, size)
        open_many(bench, folder)
        save_in_background(bench, folder, size)


def runs_of(bench, part, folder, options):
    """Whole programs by turns: three of each, beginning with another one each time."""
    often = ["--repetitions", 3 if bench.quick else 5]
    ours = [bench.bin / "bench_checkpoint", part, "--folder", folder, *often, *options]
    python = [bench.peer / "bin" / "python", PEER_SCRIPT, part, "--folder", folder, *often, *options]
    takers = {"ours": lambda: bench.program(ours), "python": lambda: json.loads(bench.output(python))}
    if not bench.with_python:
        del takers["python"]
    runs = {"ours": [], "python": []}
    for number in range(1 if bench.quick else 3):
        for kind in list(takers) if number % 2 == 0 else list(reversed(takers)):
            runs[kind].append(takers[kind]())
    return runs, [bench.shown(ours), bench.shown(python)]


def median_us(runs, name):
    return statistics.median(row["p50_us"] for run in runs for row in run["rows"] if row["name"] == name)


def rate_text(us_a_megabyte):
    return f"{1e3 / us_a_megabyte:.2f} GB/s"


def against(bench, what, runs, own_name, peer_name, goal, commands, text):
    """How many times as fast as Python; without a goal the figure has no verdict."""
    own = median_us(runs["ours"], own_name)
    goal_text = "" if goal is None else f"at least {goal}"
    if not runs["python"]:
        bench.skip(f"{what}, against {peer_name}", "Python", goal_text)
        return
    other = median_us(runs["python"], peer_name)
    bench.add(
        what=f"{what}, against {peer_name}",
        ours=text(own),
        peer=text(other),
        peer_name="Python",
        ratio=other / own,
        ratio_text=f"{other / own:.2f} of its speed",
        goal=goal_text,
        met=None if goal is None else other / own >= goal,
        commands=commands,
        details=runs,
    )


def extra_memory(bench, what, runs, commands):
    """Beside the model itself."""
    largest = max(run["extra_megabytes"] for run in runs["ours"])
    peer = [run["extra_megabytes"] for run in runs["python"]]
    size = runs["ours"][0]["megabytes"]
    bench.add(
        what=f"{what}, memory beside the model of {size} MB",
        ours=f"{largest:.0f} MB",
        peer=f"{max(peer):.0f} MB" if peer else "",
        peer_name="Python" if peer else "",
        ratio=largest,
        ratio_text=f"{largest:.0f} MB",
        goal=f"under {0.05 * size:.0f} MB (5 %)",
        met=largest < 0.05 * size,
        commands=commands,
        details=runs,
    )


def save(bench, folder, size):
    runs, commands = runs_of(bench, "save", folder, size)
    speed = statistics.median(run["speed"] for run in runs["ours"])
    bench.add(
        what="save_model to the disk, against writing the bytes by hand",
        ours=rate_text(median_us(runs["ours"], "save_model")),
        peer=rate_text(median_us(runs["ours"], "by hand")),
        peer_name="write and fsync",
        ratio=speed,
        ratio_text=f"{speed:.2f} of its speed",
        goal="at least 0.9",
        met=speed >= 0.9,
        commands=commands[:1],
        details=runs,
    )
    peers = ["safetensors save_file", "torch.save"]
    if runs["python"]:
        peers.sort(key=lambda peer: median_us(runs["python"], peer))
    # The goal is against the faster of the two.
    against(bench, "save_model to the disk", runs, "save_model", peers[0], 1.5, commands, rate_text)
    against(bench, "save_model to the disk", runs, "save_model", peers[1], None, commands, rate_text)
    extra_memory(bench, "save_model", runs, commands)


def load(bench, folder, size):
    runs, commands = runs_of(bench, "load", folder, size)
    for peer, goal in (("load_file, load_state_dict", 1.5), ("torch.load, load_state_dict", None)):
        against(bench, "load_checkpoint_in_model", runs, "load_checkpoint_in_model", peer, goal, commands, rate_text)
    extra_memory(bench, "load_checkpoint_in_model", runs, commands)


def open_many(bench, folder):
    runs, commands = runs_of(bench, "open", folder, [])
    for name in ("open", "open, all tensors"):
        against(
            bench, "a file of 10,000 tensors", runs, name, name, 5, commands, lambda us: f"{us / 1e3:.2f} ms"
        )  # fmt: skip


def save_in_background(bench, folder, size):
    """Of ours alone: Python has nothing of the kind."""
    often = ["--repetitions", 3 if bench.quick else 5]
    for device, goal in (("cpu", 0.10), ("cuda", 0.03)):
        what = f"save_state in the background, the time that it stops the loop ({device})"
        command = [bench.bin / "bench_checkpoint", "async", "--folder", folder, "--device", device, *often, *size]
        if device == "cuda" and not pathlib.Path("/dev/nvidia0").exists():
            bench.add(
                what=what, ours="", peer="", peer_name="save_state that waits", ratio=None, ratio_text="not measured",
                goal=f"under {goal:.0%}", met=None, commands=[], details={"skipped": "no GPU"},
            )  # fmt: skip
            continue
        runs = [bench.program(command) for _ in range(1 if bench.quick else 3)]
        part = statistics.median(run["part"] for run in runs)
        seconds = {
            name: 1e-6 * median_us(runs, name) * runs[0]["megabytes"] for name in ("asynchronous", "synchronous")
        }
        bench.add(
            what=what,
            ours=f"{seconds['asynchronous']:.3f} s",
            peer=f"{seconds['synchronous']:.3f} s",
            peer_name="save_state that waits",
            ratio=part,
            ratio_text=f"{part:.1%} of its time",
            goal=f"under {goal:.0%}",
            met=part < goal,
            commands=[bench.shown(command)],
            details=runs,
        )

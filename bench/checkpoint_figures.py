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
    own = median_us(runs["ours"], own_name)
    if not runs["python"]:
        bench.skip(f"{what}, against {peer_name}", "Python", f"at least {goal}")
        return
    other = median_us(runs["python"], peer_name)
    bench.add(
        what=f"{what}, against {peer_name}",
        ours=text(own),
        peer=text(other),
        peer_name="Python",
        ratio=other / own,
        ratio_text=f"{other / own:.2f} of its speed",
        goal=f"at least {goal}",
        met=other / own >= goal,
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
        goal=f"under {0.1 * size:.0f} MB",
        met=largest < 0.1 * size,
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
    for peer in ("safetensors save_file", "torch.save"):
        against(bench, "save_model to the disk", runs, "save_model", peer, 1.0, commands, rate_text)
    extra_memory(bench, "save_model", runs, commands)


def load(bench, folder, size):
    runs, commands = runs_of(bench, "load", folder, size)
    for peer in ("load_file, load_state_dict", "torch.load, load_state_dict"):
        against(bench, "load_checkpoint_in_model", runs, "load_checkpoint_in_model", peer, 1.0, commands, rate_text)
    extra_memory(bench, "load_checkpoint_in_model", runs, commands)


def open_many(bench, folder):
    runs, commands = runs_of(bench, "open", folder, [])
    for name in ("open", "open, all tensors"):
        against(
            bench, "a file of 10,000 tensors", runs, name, name, 1.0, commands, lambda us: f"{us / 1e3:.2f} ms"
        )  # fmt: skip

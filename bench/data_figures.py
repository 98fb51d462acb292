"""The figures of the data loader, for run.py: `bench` is its Bench."""

import json
import pathlib
import statistics
import tempfile

PEER_SCRIPT = pathlib.Path(__file__).resolve().parent / "python_peer" / "data_loop.py"
# Sums over all samples in different orders agree to this part of them.
SUM_TOLERANCE = 1e-9


def measure(bench):
    with tempfile.TemporaryDirectory() as folder:
        images(bench, folder)
        tokens(bench, folder)
    cost(bench)
    skip(bench)
    memory(bench)


def ours_command(bench, part, *options):
    return [bench.bin / "bench_data", part, *options]


def python_command(bench, part, *options):
    return [bench.peer / "bin" / "python", PEER_SCRIPT, part, *options]


def quick_or(bench, repetitions):
    return ["--repetitions", 3] if bench.quick else ["--repetitions", repetitions]


def time_text(row):
    us = row["p50_us"]
    return f"{us / 1e6:.2f} s" if us >= 1e5 else f"{us:.2f} us"


def rate_text(us):
    return f"{1 / us:.3f} million/s"


# --- images through a prepared loader, against Python -----------------------------------------------------------------


def images(bench, folder):
    ours = ours_command(bench, "images", "--folder", folder, *quick_or(bench, 5))
    python = python_command(bench, "images", "--folder", folder, "--repetitions", 2)
    runs = {"ours": [], "python": []}
    takers = {
        "ours": lambda: bench.program(ours),
        "python": lambda: json.loads(bench.output(python)),
    }
    if not bench.with_python:
        del takers["python"]
    for number in range(1 if bench.quick else 3):
        # Ours writes the images, so it begins.
        order = list(takers) if number % 2 == 0 else list(reversed(takers))
        for kind in order:
            runs[kind].append(takers[kind]())
    require_equal_sums(bench, runs)

    def median_us(kind, name):
        rows = [row for run in runs[kind] for row in run["rows"] if row["name"] == name]
        return statistics.median(row["p50_us"] for row in rows)

    for variant in ("IdxDataset", "map_batches", "get"):
        for workers in ("0 workers", "1 workers", "2 workers"):
            what = f"images, {variant}, {workers}"
            own = median_us("ours", f"{variant}, {workers}")
            if not bench.with_python:
                bench.skip(what, "Python", "at least 10")
                continue
            other = median_us("python", workers)
            bench.add(
                what=what,
                ours=rate_text(own),
                peer=rate_text(other),
                peer_name="Python",
                ratio=other / own,
                ratio_text=f"{other / own:.1f} times the samples",
                goal="at least 10",
                met=other / own >= 10,
                commands=[bench.shown(ours), bench.shown(python)],
                details={"ours_us": own, "peer_us": other, "runs": runs},
            )
    alone = median_us("ours", "get, without a loader")
    own = median_us("ours", "get, 0 workers")
    bench.add(
        what="images, get, 0 workers, against its get() in a loop",
        ours=rate_text(own),
        peer=rate_text(alone),
        peer_name="without a loader",
        ratio=alone / own,
        ratio_text=f"{alone / own:.3f} of its speed",
        goal="",
        met=None,
        commands=[bench.shown(ours)],
        details={"ours_us": own, "peer_us": alone},
    )


def require_equal_sums(bench, runs):
    expected = runs["ours"][0]["sums"]
    sums = [run["sums"] for run in runs["ours"]] + [found for run in runs["python"] for found in run["sums"]]
    for found in sums:
        for a, b in zip(found, expected):
            bench.require(abs(a - b) <= SUM_TOLERANCE * abs(b), f"the samples sum up to {found}, not {expected}")


# --- the loader against loops by hand, and by itself ------------------------------------------------------------------


def tokens(bench, folder):
    command = ours_command(bench, "tokens", "--folder", folder, *quick_or(bench, 21))
    results = bench.program(command)
    rows = {row["name"]: row for row in results["rows"]}
    for kind, loop in (("as stored", "memcpy by hand"), ("int64", "widened by hand")):
        hand = rows[f"by hand, {kind}"]
        for name in [f"loader, {kind}, {workers} workers" for workers in range(3)] + [f"by hand, {kind}, new tensors"]:
            row = rows[name]
            speed = row["speed_of_hand"]
            is_loader = name.startswith("loader")
            bench.add(
                what=f"tokens, {name}",
                ours=time_text(row),
                peer=time_text(hand),
                peer_name=loop,
                ratio=speed,
                ratio_text=f"{speed:.3f} of its speed",
                goal="at least 0.9" if is_loader else "",
                met=speed >= 0.9 if is_loader else None,
                commands=[bench.shown(command)],
                details=row,
            )


def single_times(bench, part, repetitions, goal, limit_us):
    command = ours_command(bench, part, *quick_or(bench, repetitions))
    for row in bench.program(command)["rows"]:
        bench.add_under(
            limit_us,
            row["p50_us"],
            what=f"{part}, {row['name']}",
            ours=time_text(row),
            ratio_text=f"{time_text(row)} (best {row['best_us']:.2f} us)",
            goal=goal,
            commands=[bench.shown(command)],
            details=row,
        )


def cost(bench):
    single_times(bench, "cost", 31, "under 5 us a batch", 5)


def skip(bench):
    single_times(bench, "skip", 31, "under 10 ms", 1e4)
    if not bench.with_python:
        bench.skip("skip, Python", "Python", "")
        return
    command = python_command(bench, "skip")
    for row in json.loads(bench.output(command))["rows"]:
        bench.add(
            what=f"skip, Python, {row['skipped']:,} batches of {row['samples']:,} samples, {row['name']}",
            ours="",
            peer=time_text(row),
            peer_name="Python",
            ratio=row["p50_us"],
            ratio_text=time_text(row),
            goal="",
            met=None,
            commands=[bench.shown(command)],
            details=row,
        )


def memory(bench):
    command = ours_command(bench, "memory")
    for row in bench.program(command)["rows"]:
        bench.add_under(
            50,
            row["growth_mb"],
            what=f"memory, 10^9 samples, {row['name']}",
            ours=f"{row['growth_mb']:.1f} MB",
            ratio_text=f"{row['growth_mb']:.1f} MB after {row['batches']:,} batches",
            goal="under 50 MB",
            commands=[bench.shown(command)],
            details=row,
        )

"""The figures of the program `accelerate`, for run.py: `bench` is its Bench."""

import os
import pathlib
import re
import subprocess
import tempfile
import time

from measuring import quantile, run, seconds_text

PEER_START = pathlib.Path(__file__).resolve().parent / "python_peer" / "make_accelerator.py"
DEADLINE_S = 120
IDLE_WORKERS = 64
# Rank 1 writes when it fails; the other would go on for long.
FAILING_WORKER = """#!/bin/sh
if [ "$RANK" = 1 ]; then
  sleep 0.5
  date +%s.%N > "$FAILED_AT"
  exit 3
fi
exec sleep 60
"""


def measure(bench):
    dry_run(bench)
    ranks_up(bench)
    idle_workers(bench)
    failure_report(bench)


def median(values):
    return quantile(values, 0.5)


def timed(command):
    """Seconds of a command that ends with 0."""
    return run(command)[1]


# --- without workers ------------------------------------------------------------------------------------------------


def dry_run(bench):
    command = [*bench.two_ranks, "--dry_run", "/bin/true"]
    output = bench.output(command)
    bench.require(output.count("/bin/true") == 2, f"--dry_run printed {output!r}")
    times = [timed(command) for _ in range(10 if bench.quick else 50)]
    own = median(times)
    bench.add_under(
        0.020,
        own,
        what="accelerate launch --dry_run, 2 ranks",
        ours=seconds_text(times),
        ratio_text=f"{1e3 * own:.1f} ms",
        goal="under 20 ms",
        commands=[bench.shown(command)],
        details=times,
    )
    what = "accelerate launch --help, against Python's"
    if not bench.with_python:
        bench.skip(what, "Python", "at least 10")
        return
    ours = [bench.bin / "accelerate", "launch", "--help"]
    python = [bench.peer / "bin" / "accelerate", "launch", "--help"]
    runs = {"ours": [], "python": []}
    for _ in range(2 if bench.quick else 5):
        runs["python"].append(timed(python))
        runs["ours"] += [timed(ours) for _ in range(4)]
    ratio = median(runs["python"]) / median(runs["ours"])
    bench.add(
        what=what,
        ours=seconds_text(runs["ours"]),
        peer=seconds_text(runs["python"]),
        peer_name="Python",
        ratio=ratio,
        ratio_text=f"{ratio:.0f} times faster",
        goal="at least 10",
        met=ratio >= 10,
        commands=[bench.shown(ours), bench.shown(python)],
        details=runs,
    )


# --- ranks that meet ------------------------------------------------------------------------------------------------


def ranks_up(bench):
    """What a process group of two ranks costs over one process of the same program."""
    alone = [bench.bin / "bench_start"]
    together = [*bench.two_ranks, *alone]
    python_alone = [bench.peer / "bin" / "python", PEER_START]
    python_together = [*bench.torchrun, PEER_START]
    pairs = {"ours": (alone, together), "python": (python_alone, python_together)}
    if not bench.with_python:
        del pairs["python"]
    extra = {"ours": [], "python": []}
    for _, commands in pairs.items():
        for command in commands:
            timed(command)  # brings the files into memory
    for _ in range(2 if bench.quick else 7):
        for kind, (one, two) in pairs.items():
            base = min(timed(one) for _ in range(2))
            extra[kind].append(timed(two) - base)
    own = median(extra["ours"])
    bench.add(
        what="2 ranks up with process group, over the program's own load time",
        ours=seconds_text(extra["ours"]),
        peer=seconds_text(extra["python"]) if extra["python"] else "",
        peer_name="Python (torchrun)" if extra["python"] else "",
        ratio=own,
        ratio_text=f"{1e3 * own:.0f} ms",
        goal="under 400 ms",
        met=own < 0.4,
        commands=[bench.shown(command) for pair in pairs.values() for command in pair],
        details=extra,
    )


# --- supervision ----------------------------------------------------------------------------------------------------


def children(pid):
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):  # it has just ended
            continue
        if int(fields[1]) == pid:
            found.append(int(path.parent.name))
    return found


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    except OSError:
        return ""


def processor_seconds(pids):
    ticks = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def idle_share(bench, command):
    """The share of a core that the launcher of idle workers uses, with all helpers that it has."""
    seconds = 3 if bench.quick else 10
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + DEADLINE_S
        while True:
            workers = [pid for pid in children(process.pid) if command_of(pid).endswith("sleep")]
            if len(workers) == IDLE_WORKERS:
                break
            bench.require(time.monotonic() < end and process.poll() is None, f"{bench.shown(command)} started too few workers")
            time.sleep(0.1)
        time.sleep(2)  # starting them is not what is measured
        helpers = [pid for pid in children(process.pid) if pid not in workers]
        before, began = processor_seconds([process.pid, *helpers]), time.monotonic()
        time.sleep(seconds)
        used = processor_seconds([process.pid, *helpers]) - before
        return used / (time.monotonic() - began)
    finally:
        process.terminate()
        process.wait(timeout=DEADLINE_S)


def idle_workers(bench):
    ours = [bench.bin / "accelerate", "launch", "--cpu", "--num_processes", IDLE_WORKERS, "/bin/sleep", "600"]
    python = [bench.peer / "bin" / "torchrun", "--standalone", "--no-python", "--nproc_per_node", IDLE_WORKERS]
    python += ["/bin/sleep", "600"]
    own = idle_share(bench, ours)
    other = idle_share(bench, python) if bench.with_python else None
    bench.add(
        what=f"{IDLE_WORKERS} idle workers supervised, share of a core",
        ours=f"{100 * own:.2f} %",
        peer="" if other is None else f"{100 * other:.2f} %",
        peer_name="" if other is None else "torchrun",
        ratio=own,
        ratio_text=f"{100 * own:.2f} %",
        goal="under 1 %",
        met=own < 0.01,
        commands=[bench.shown(ours)] + ([bench.shown(python)] if bench.with_python else []),
        details={"ours": own, "peer": other},
    )


def seconds_to_report(bench, command, report, folder):
    """From the moment at which a worker failed until its failure can be read."""
    moment = pathlib.Path(folder) / "failed_at"
    moment.unlink(missing_ok=True)
    process = subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "FAILED_AT": str(moment)},
    )
    reported = None
    text = ""
    for line in process.stderr:
        text += line
        if reported is None and re.search(report, line):
            reported = time.time()
    process.wait(timeout=DEADLINE_S)
    bench.require(reported is not None, f"{bench.shown(command)} reported no failure but {text!r}")
    return reported - float(moment.read_text())


def failure_report(bench):
    with tempfile.TemporaryDirectory() as folder:
        worker = pathlib.Path(folder) / "worker"
        worker.write_text(FAILING_WORKER)
        worker.chmod(0o755)
        ours = [*bench.two_ranks, worker]
        python = [bench.peer / "bin" / "torchrun", "--standalone", "--no-python", "--nproc_per_node", 2, worker]
        often = 2 if bench.quick else 5
        own = [seconds_to_report(bench, ours, r"^error: rank 1 of 2 .* 3", folder) for _ in range(often)]
        other = []
        if bench.with_python:
            other = [seconds_to_report(bench, python, r"exitcode *: 3", folder) for _ in range(often)]
        worst = max(own)
        bench.add(
            what="failure of a worker seen and reported",
            ours=seconds_text(own),
            peer=seconds_text(other) if other else "",
            peer_name="torchrun" if other else "",
            ratio=worst,
            ratio_text=f"{1e3 * worst:.0f} ms at worst",
            goal="within 1 s",
            met=worst < 1,
            commands=["bench/run.py --only launch"],
            details={"ours": own, "peer": other},
        )

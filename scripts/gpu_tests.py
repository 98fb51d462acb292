#!/usr/bin/env python3
"""Runs the tests that need a GPU on a machine that has one, but no compiler, and makes the page docs/gpu_tests.md.

usage: gpu_tests.py pack   [--build DIR] [--folder DIR] [--limit MIB] [--programs NAME:WAY[:FILTER] ...] [--also NAME ...]
       gpu_tests.py run    [--folder DIR] [--minutes N] [--at_once N] [--again] [--unpacked DIR] [--programs ...]
       gpu_tests.py unpack DIR [--folder DIR]
       gpu_tests.py table  [--folder DIR]

pack gathers the built programs and libraries, stripped and compressed, in a folder that can be sent, and says how large
it is. run goes there: it needs Python with the torch of the build, no more. It stops before its minutes are over and
goes on where it stopped when it is called again: results.json in the folder holds what is done, and a copy of it lies
in $OUT with the output of what failed (failed.log), where that is set. unpack is for other programs that came along, such
as benchmarks, and spares run the same. table prints the page from the results.

Programs of many cases on several ranks run as several, with a part of the cases each; FILTER is that of GoogleTest.

A program runs in one of these ways:
  own      as it is: it asks for the GPU itself
  gloo     with ACCELERATE_TEST_DEVICE=cuda: its ranks exchange tensors through the memory of the host
  nccl     with ACCELERATE_TEST_DEVICE=nccl: its ranks share the GPU over NCCL
  example  by the check of that example, on one process and on two that share the GPU over NCCL
"""

import argparse
import concurrent.futures
import datetime
import importlib.util
import json
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = ("libaccelerate.so.0", "libaccelerate_transformers.so.0", "libaccelerate_cuda.so")
COMPANIONS = ("libpcre2-8.so.0", "libutf8proc.so.2")  # of Debian: the other machine may have none
LAUNCHER = "accelerate"
WAYS = ("own", "gloo", "nccl", "example")
ALL_SKIPPED = 77
LONGEST_PROGRAM_S = 400
MOST_OUTPUT = 400_000  # characters of a program that failed
KEEPING = threading.Lock()

# Into how many parts the cases of a program are dealt out that would take longer than others.
PARTS = {
    ("accelerator_test", "nccl"): 2, ("comm_test", "gloo"): 2, ("ddp_test", "gloo"): 2, ("ddp_test", "nccl"): 3,
    ("flat_training_test", "nccl"): 2, ("operations_test", "nccl"): 2, ("resume_test", "gloo"): 2, ("resume_test", "nccl"): 3,
    ("state_test", "gloo"): 2, ("state_test", "nccl"): 3, ("strategy_test", "nccl"): 3, ("training_test", "gloo"): 2,
    ("training_test", "nccl"): 4, ("zero_test", "gloo"): 4, ("zero_test", "nccl"): 12,
}  # fmt: skip

OWN = ("cuda_test", "capture_cuda_test", "checkpoint_cuda_test", "nccl_test", "optim_cuda_test", "precision_cuda_test", "touch_cuda_test",
       "tracking_cuda_test")
ALONE_ON_GPU = ("decoders_test", "flat_test", "ops_test", "optim_test", "precision_test")
OF_RANKS = (
    "accelerator_test", "comm_groups_test", "comm_hooks_test", "comm_test", "ddp_test", "flat_training_test", "join_test",
    "loader_ranks_test", "operations_test", "process_control_test", "rank_helpers_test", "resume_test",
    "state_recovery_test", "state_test", "strategy_test", "touched_ranks_test", "training_test", "zero_test",
)  # fmt: skip
BY_FEATURE = (
    "actor_critic", "automatic_gradient_accumulation", "checkpointing", "cross_validation", "ddp_comm_hook", "early_stopping",
    "gan", "gradient_accumulation", "local_sgd", "memory_safe_batch_size", "multi_process_metrics", "preemption", "schedule",
    "token_weighted_accumulation", "tracking", "zero",
)  # fmt: skip
EXAMPLES = (*("by_feature_" + name for name in BY_FEATURE), "data_resume", "data_streaming", "data_tokens", "train_gpt2")

# What no program may say, however well its tests went: the first two are libtorch's words for what was left open.
FORBIDDEN = (
    "destroy_process_group() was not called", "NCCL communicator hasn't been destroyed", "terminate called",
    "Process group watchdog thread terminated",
)  # fmt: skip


def default_programs():
    """(name, way), the ones of a way together."""
    jobs = [(name, "own") for name in OWN]
    jobs += [(name, "gloo") for name in ALONE_ON_GPU + OF_RANKS]
    jobs += [(name, "nccl") for name in OF_RANKS]
    jobs += [(name, "example") for name in EXAMPLES]
    return jobs


def parsed_program(text):
    name, way, cases = (text.split(":", 2) + ["", ""])[:3]
    if not name or way not in WAYS:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME:WAY with a way of {', '.join(WAYS)}")
    return (name, way, cases) if cases else (name, way)


def in_parts(jobs):
    """(name, way, cases): these are a filter, or a part such as "2/4" of all."""
    for name, way, *cases in jobs:
        parts = PARTS.get((name, way), 1)
        if cases or parts == 1:
            yield name, way, *(cases or [""])
        else:
            yield from ((name, way, f"{part}/{parts}") for part in range(1, parts + 1))


# --- pack


def stripped(path):
    """The bytes of a program or library without what only a debugger needs."""
    data = path.read_bytes()
    if not data.startswith(b"\x7fELF"):
        return data
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run(["strip", "-o", file.name, str(path)], check=True)
        return Path(file.name).read_bytes()


def companions(build):
    """Where the dynamic linker finds them here, for the libraries that need them."""
    told = "".join(
        subprocess.run(["ldd", str(build / "lib" / name)], capture_output=True, text=True, check=False).stdout
        for name in LIBRARIES if (build / "lib" / name).exists()
    )  # fmt: skip
    return [Path(path) for name in COMPANIONS for path in re.findall(rf"^\s*{re.escape(name)} => (/\S+)", told, re.MULTILINE)[:1]]


def commit_of_tree():
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "unknown") + (" and changes" if git("status", "--porcelain", "-uno") else "")


def results_of_same_commit(folder, commit):
    """Those of other parts, where a pack is too large to be sent as a whole."""
    path = folder / "results.json"
    text = path.read_text() if path.exists() else ""
    return text if text and json.loads(text)["commit"] == commit and "changes" not in commit else ""


def pack(args):
    wanted = [(LAUNCHER, "bin")] + [(name, "bin") for name, *_ in args.programs] + [(name, "lib") for name in LIBRARIES]
    wanted += [(name, "bin") for name in args.also]
    wanted = list(dict.fromkeys(wanted))
    facts = {"commit": commit_of_tree(), "programs": args.programs}
    kept = results_of_same_commit(args.folder, facts["commit"])
    if args.folder.exists():
        shutil.rmtree(args.folder)
    missing, total = [], 0
    print(f"{'file':40} {'stripped':>10} {'packed':>10}")
    sources = [(name, kind, args.build / kind / name) for name, kind in wanted]
    sources += [(path.name, "lib", path) for path in companions(args.build)]
    for name, kind, source in sources:
        if not source.exists():
            missing.append(name)
            continue
        data = stripped(source.resolve())
        packed = lzma.compress(data, preset=3)
        target = args.folder / kind / (name + ".xz")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(packed)
        total += len(packed)
        print(f"{name:40} {len(data) / 1e6:7.1f} MB {len(packed) / 1e6:7.1f} MB")
    args.folder.mkdir(parents=True, exist_ok=True)
    facts["missing"] = missing
    if kept:
        (args.folder / "results.json").write_text(kept)
    (args.folder / "pack.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(f"{args.folder}: {total / 2**20:.1f} MiB in {len(sources) - len(missing)} files")
    if missing:
        print("not built, and left out: " + ", ".join(missing))
    if total > args.limit * 2**20:
        sys.exit(f"that is more than {args.limit} MiB: name fewer by --programs, and pack and run in parts")


# --- run


def unpack_one(packed, scratch):
    target = scratch / packed.parent.name / packed.stem
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(lzma.decompress(packed.read_bytes()))
    target.chmod(0o755)


def unpacked(folder, scratch):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:  # lzma lets other threads run
        list(pool.map(lambda packed: unpack_one(packed, scratch), sorted(folder.glob("*/*.xz"))))


def libraries_of_torch():
    """Folders of the torch that Python would import, found without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return []
    torch = Path(next(iter(spec.submodule_search_locations)))
    return [torch / "lib", *sorted(torch.parent.glob("nvidia/*/lib"))]


def first_line(command):
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip().split("\n")[0] if result.returncode == 0 else ""


def versions():
    gpu = first_line(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]) or "no nvidia-smi"
    torch = first_line([
        sys.executable, "-c",
        "import torch; print('torch', torch.__version__ + ', CUDA', str(torch.version.cuda) + ', NCCL', '.'.join(map(str, torch.cuda.nccl.version())))",
    ])  # fmt: skip
    return {"gpu": gpu, "torch": torch or "no torch in Python"}


def environment_of(way, scratch, cases=""):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ACCELERATE_")}
    folders = [scratch / "lib", *libraries_of_torch()]
    environment["LD_LIBRARY_PATH"] = ":".join(map(str, folders))
    environment["ACCELERATE_VECTORS"] = str(ROOT / "tests/vectors")
    environment["ACCELERATE_FIXTURES"] = str(ROOT / "tests/fixtures")
    environment["ACCELERATE_BUILD"] = str(scratch)
    # Ranks that are slower than on a host of their own say so by a test, not by a deadline.
    environment["ACCELERATE_TEST_DEADLINE"] = "2"
    if way == "gloo":
        environment["ACCELERATE_TEST_DEVICE"] = "cuda"
    if way in ("nccl", "example"):
        environment["ACCELERATE_TEST_DEVICE"] = "nccl"
    if part := re.fullmatch(r"(\d+)/(\d+)", cases):
        environment["GTEST_SHARD_INDEX"] = str(int(part[1]) - 1)
        environment["GTEST_TOTAL_SHARDS"] = part[2]
    elif cases:
        environment["GTEST_FILTER"] = cases
    return environment


def check_of_example(name):
    """The script that runs an example and reads what it prints, and what it calls the example."""
    if name == "train_gpt2":
        return [ROOT / "examples/gpt2/check_example.py"]
    folder = "data" if name.startswith("data_") else "by_feature"
    short = name.removeprefix(folder + "_")
    script = "check_checkpoints.py" if short in ("checkpointing", "preemption") else "check_examples.py"
    return [ROOT / "examples" / folder / script, short]


def command_of(name, way, scratch):
    program = scratch / "bin" / name
    if way != "example":
        return [str(program)]
    words = [sys.executable, *check_of_example(name), "--accelerate", scratch / "bin" / LAUNCHER, "--example", program]
    return [str(word) for word in words]


def run_to_its_end(command, environment, limit):
    """Exit status and output; the status is None where the program and all that it started had to be killed."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = None
        output.seek(0)
        return status, output.read().decode("utf-8", "replace")


def counts_of(output):
    """Passed, skipped and failed cases of a GoogleTest program; the names of those that failed."""
    passed = len(re.findall(r"^\[       OK \] .* \(\d+ ms\)$", output, re.MULTILINE))
    skipped = len(re.findall(r"^\[  SKIPPED \] .* \(\d+ ms\)$", output, re.MULTILINE))
    failed = re.findall(r"^\[  FAILED  \] (\S+?),? .*\(\d+ ms\)$", output, re.MULTILINE)
    begun = re.findall(r"^\[ RUN      \] (\S+)$", output, re.MULTILINE)
    if len(begun) > passed + skipped + len(failed):
        failed.append(begun[-1])  # the program ended inside of it
    return passed, skipped, failed


def result_of(job, scratch, limit, out):
    name, way, cases = job
    started = time.monotonic()
    status, output = run_to_its_end(command_of(name, way, scratch), environment_of(way, scratch, cases), limit)
    passed, skipped, failed = counts_of(output)
    problems = [f"it said '{words}'" for words in FORBIDDEN if words in output]
    if way == "example":
        passed = 1 if status == 0 and not problems else 0
    if status is None:
        problems.append(f"killed after {limit:.0f} s")
    elif status not in (0, ALL_SKIPPED) and not failed:
        problems.append(f"ended with status {status}")
    if (failed or problems) and out:
        with KEEPING, (out / "failed.log").open("a") as log:
            log.write(f"======== {' '.join(job)}: {' '.join(failed + problems)}\n{output[-MOST_OUTPUT:]}\n")
    return {
        "name": name, "way": way, "cases": cases, "passed": passed, "skipped": skipped, "failed": failed, "problems": problems,
        "seconds": round(time.monotonic() - started, 1),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
    }  # fmt: skip


class Results:
    """What is done, in a file that each finished program is added to."""

    def __init__(self, folder, again):
        self.path = folder / "results.json"
        self.out = Path(os.environ["OUT"]) if os.environ.get("OUT") else None
        if self.out:
            self.out.mkdir(parents=True, exist_ok=True)
        kept = json.loads(self.path.read_text()) if self.path.exists() and not again else {}
        self.facts = {**json.loads((folder / "pack.json").read_text()), **versions(), "results": kept.get("results", [])}

    def is_done(self, job):
        return any((result["name"], result["way"], result.get("cases", "")) == job for result in self.facts["results"])

    def add(self, result):
        self.facts["results"].append(result)
        text = json.dumps(self.facts, indent=1) + "\n"
        for path in [self.path] + ([self.out / "results.json"] if self.out else []):
            path.write_text(text)


def line_of(result):
    way = " ".join(filter(None, (result["way"], result["cases"])))
    text = f"{result['name']} ({way}): {result['passed']} passed, {result['skipped']} skipped, {len(result['failed'])} failed"
    return f"{text}, {result['seconds']:.0f} s" + "".join("\n    " + word for word in result["failed"] + result["problems"])


def run(args):
    if not (args.folder / "pack.json").exists():
        sys.exit(f"there is nothing in {args.folder}: pack first, on the machine that has the build")
    give_up = time.monotonic() + 60 * args.minutes
    results = Results(args.folder, args.again)
    packed = {file.stem for file in args.folder.glob("bin/*.xz")}
    programs = [job for job in args.programs or results.facts["programs"] if job[0] in packed]
    waiting = [job for job in in_parts(programs) if not results.is_done(job)]
    left = []
    with tempfile.TemporaryDirectory(prefix="gpu_tests-") as temporary:
        scratch = args.unpacked or Path(temporary)
        if not args.unpacked:
            unpacked(args.folder, scratch)

        def one(job):
            # A program has the time that is left: the machine may be gone after it.
            limit = min(args.longest, give_up - time.monotonic())
            if limit < args.least:
                left.append(job)
                return None
            return result_of(job, scratch, limit, results.out)

        with concurrent.futures.ThreadPoolExecutor(args.at_once) as pool:
            for future in concurrent.futures.as_completed([pool.submit(one, job) for job in waiting]):
                result = future.result()
                if result is None:
                    continue
                was_cut_short = any(word.startswith("killed after") for word in result["problems"])
                if was_cut_short and result["seconds"] < args.longest - 1:
                    left.append((result["name"], result["way"], result["cases"]))
                    print(f"cut short: {line_of(result)}", flush=True)
                    continue
                results.add(result)
                print(line_of(result), flush=True)
    if left:
        print(f"{len(left)} left: call this again")
    red = [result for result in results.facts["results"] if result["failed"] or result["problems"]]
    print(f"{len(results.facts['results'])} done, {len(red)} red")
    return 1 if red else 0


# --- table


def together(results):
    """One row for the parts of a program. Cases that were chosen by a filter do not say that all of it passed."""
    rows = {}
    for result in results:
        cases = "" if "/" in result.get("cases", "") else result.get("cases", "")
        row = rows.setdefault((result["name"], result["way"], cases), {**result, "failed": [], "problems": []})
        if row["cases"] != result["cases"]:
            for count in ("passed", "skipped", "seconds"):
                row[count] += result[count]
        row["failed"] = row["failed"] + result["failed"]
        row["problems"] = row["problems"] + result["problems"]
    for (name, _, cases), row in rows.items():
        row["name"] = f"{name} {cases}".strip()
    return sorted(rows.values(), key=lambda row: (WAYS.index(row["way"]), row["name"]))


def table(args):
    facts = json.loads((args.folder / "results.json").read_text())
    results = together(facts["results"])
    dates = sorted({result["date"] for result in results})
    print("# Tests on a GPU\n")
    print("The last run of `scripts/gpu_tests.py`, which makes this page (see `docs/testing.md`).\n")
    print(f"- date: {' to '.join(dict.fromkeys((dates[0], dates[-1]))) if dates else 'never'}")
    print(f"- commit: {facts['commit']}")
    print(f"- machine: {facts['gpu']} (name, driver); {facts['torch']}\n")
    for way, title in (
        ("own", "Programs that ask for the GPU themselves"),
        ("gloo", "Tensors on the GPU, ranks over Gloo"),
        ("nccl", "Ranks that share the GPU over NCCL"),
        ("example", "Examples on one rank, and on two that share the GPU over NCCL"),
    ):
        of_way = [result for result in results if result["way"] == way]
        if not of_way:
            continue
        print(f"## {title}\n\n| program | passed | skipped | failed | seconds |\n|---|---:|---:|---:|---:|")
        for result in of_way:
            broken = len(result["failed"]) + len(result["problems"])
            print(f"| `{result['name']}` | {result['passed']} | {result['skipped']} | {broken} | {result['seconds']:.0f} |")
        print()
    red = [result for result in results if result["failed"] or result["problems"]]
    if red:
        print("## What failed\n")
        for result in red:
            for word in result["failed"] + result["problems"]:
                print(f"- `{result['name']}` ({result['way']}): {word}")
        print()
    if facts.get("missing"):
        print("Not built, and not run: " + ", ".join(f"`{name}`" for name in facts["missing"]) + ".\n")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    parsers = {name: commands.add_parser(name) for name in ("pack", "run", "unpack", "table")}
    for sub in parsers.values():
        sub.add_argument("--folder", type=Path, default=ROOT / ".gpu", help="what is sent [.gpu]")
    for name in ("pack", "run"):
        parsers[name].add_argument("--programs", type=parsed_program, nargs="+", metavar="NAME:WAY[:FILTER]", help="these alone")
    parsers["pack"].add_argument("--build", type=Path, default=ROOT / "build", help="build folder [build]")
    parsers["pack"].add_argument("--limit", type=float, default=64, metavar="MIB", help="fails above it [64]")
    parsers["pack"].add_argument("--also", nargs="+", default=[], metavar="NAME", help="other programs that are to come along")
    parsers["unpack"].add_argument("to", type=Path, help="gets the folders bin and lib")
    parsers["run"].add_argument("--unpacked", type=Path, metavar="DIR", help="where unpack has put the programs")
    parsers["run"].add_argument("--longest", type=float, default=LONGEST_PROGRAM_S, metavar="SECONDS", help="for one program [400]")
    parsers["run"].add_argument("--minutes", type=float, default=7.5, help="time for this call [7.5]")
    parsers["run"].add_argument("--at_once", type=int, default=4, help="programs at a time [4]")
    parsers["run"].add_argument("--least", type=float, default=20, metavar="SECONDS", help="start none with less time left [20]")
    parsers["run"].add_argument("--again", action="store_true", help="forget earlier results")
    args = parser.parse_args()
    if args.command == "pack":
        args.programs = args.programs or default_programs()
        return pack(args)
    if args.command == "unpack":
        unpacked(args.folder, args.to)
        return 0
    return run(args) if args.command == "run" else table(args)


if __name__ == "__main__":
    sys.exit(main())

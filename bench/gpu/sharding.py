#!/usr/bin/env python3
"""GPT-2 on two ranks that share one GPU over NCCL: each strategy of this library beside Python's DDP and FSDP2.

usage: sharding.py BENCH_SHARDING --accelerate ACCELERATE [--json FILE] [--ranks N] [--limit SECONDS] [--without_python]
                   [--strategies NAME ...] [--peers NAME ...] [--without_one_rank] [options of both alike]

NCCL takes each rank for a host of its own, so what is exchanged travels through sockets of this machine: bytes decide, and the
figures say who sends fewer and hides more of it. Every row is printed as it comes. At the end one rank trains with stage 3 and
without a strategy, which must be equally fast. Where losses of strategies differ by more than 2 % somebody does other work,
and this fails.
"""
import argparse
import datetime
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import gpu, library_path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def started(command, variables):
    """Standard output goes through a pipe, errors to a file in memory that tells why it ended."""
    errors = tempfile.TemporaryFile()  # noqa: SIM115
    environment = {**os.environ, **variables}
    process = subprocess.Popen([str(word) for word in command], env=environment, stdout=subprocess.PIPE, stderr=errors,
                               text=True, start_new_session=True)
    return process, errors


def rows_of(command, variables, limit, others=()):
    """Rows as `command` prints them, and one that says so where it fails or had to be stopped; `others` are its peers."""
    began = time.monotonic()
    process, errors = started(command, variables)
    peers = [started(peer, peer_variables) for peer, peer_variables in others]
    everybody = [process, *(peer for peer, _ in peers)]

    def stop(*_):
        for one in everybody:
            if one.poll() is None:
                os.killpg(one.pid, signal.SIGKILL)

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(max(1, int(limit)))
    rows = []
    for line in process.stdout:
        if not line.startswith("{"):
            continue
        rows.append(json.loads(line))
        print(text_of(rows[-1]), flush=True)
    status = process.wait()
    for peer, _ in peers:
        peer.wait()
    signal.alarm(0)
    if status != 0:
        told = ""
        for file in (errors, *(other for _, other in peers)):
            file.seek(0)
            told += file.read().decode("utf-8", "replace")[-3000:]
        rows.append({"part": "sharding", "strategy": Path(str(command[0])).name, "error": f"ended with {status} after "
                     f"{time.monotonic() - began:.0f} s: {told}"})
        print(text_of(rows[-1]), flush=True)
    return rows


def ours(words, options, ranks, limit):
    launch = [words.accelerate, "launch", "--num_processes", ranks, *(["--share_gpus"] if ranks > 1 else [])]
    own_libraries = words.program.resolve().parent.parent / "lib"  # where it was built, or came along
    return rows_of([*launch, words.program, *options], {"LD_LIBRARY_PATH": f"{own_libraries}:{library_path()}"}, limit)


def python_rows(words, options, limit):
    """Started as torchrun would, without its agents: each rank is a host of its own to NCCL."""
    script = Path(__file__).with_name("sharding_peer.py")
    port = str(free_port())
    ranks = []
    for rank in range(words.ranks):
        variables = {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(words.ranks), "LOCAL_WORLD_SIZE": "1",
                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "NCCL_HOSTID": f"peer{rank}", "NCCL_SOCKET_IFNAME": "lo"}
        ranks.append(([sys.executable, script, *options], variables))
    (command, variables), *others = ranks
    return rows_of(command, variables, limit, others)


def text_of(row):
    if "error" in row:
        return f'{row["strategy"]}: failed: {row["error"]}'
    return (f'{row["ranks"]} ranks, {row["strategy"]:22} {row["tokens_per_second"]:9,.0f} tokens/s, {row["ms_per_step"]:7.1f} ms, '
            f'memory {row["peak_gib"]:5.2f} GiB, after a step {row["after_step_gib"]:5.2f} GiB, loss {row["loss"]:.4f}')


def ratios(rows):
    """What is asked for, by the figures of these rows."""
    speed = {(row["ranks"], row["strategy"]): row["tokens_per_second"] for row in rows if "error" not in row}
    goals = [(2, name, 2, "Python DDP", 1.4) for name in ("zero1", "zero2", "zero1 halved", "zero2 halved")]
    goals += [(2, "zero3 halved", 2, "Python FSDP2", 1.2), (2, "zero3 halved kept", 2, "Python FSDP2 kept", 1.2)]
    goals += [(2, name, 2, "Python FSDP2 float32", 1.2) for name in ("zero3", "zero3 bf16", "zero3 bf16 fused", "zero3 bf16 kept")]
    goals += [(1, "zero3", 1, "plain", 0.97)]
    for own_ranks, own, other_ranks, other, goal in goals:
        if (own_ranks, own) in speed and (other_ranks, other) in speed:
            ratio = speed[own_ranks, own] / speed[other_ranks, other]
            yield f'{own} / {other}: {ratio:.2f}, goal {goal}: {"met" if ratio >= goal else "missed"}'


def different_losses(rows):
    losses = [(row["strategy"], row["loss"]) for row in rows if "loss" in row and row["ranks"] == 2]
    if not losses:
        return ["nothing was measured"]
    middle = sorted(loss for _, loss in losses)[len(losses) // 2]
    return [f"{name}: loss {loss:.4f} beside {middle:.4f}" for name, loss in losses if abs(loss / middle - 1) > 0.02]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("--accelerate", type=Path, required=True)
    parser.add_argument("--json", type=Path, help="where the rows are kept")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--limit", type=float, default=170, help="seconds for all of it")
    parser.add_argument("--strategies", nargs="+", help="of bench_sharding, these alone")
    parser.add_argument("--peers", nargs="+", help="of sharding_peer.py, these alone")
    parser.add_argument("--without_python", action="store_true")
    parser.add_argument("--without_one_rank", action="store_true")
    words, options = parser.parse_known_args()
    give_up = time.monotonic() + words.limit
    left = lambda share: share * (give_up - time.monotonic())  # noqa: E731
    chosen = [*options, *(["--strategies", *words.strategies] if words.strategies else [])]
    rows = ours(words, chosen, words.ranks, left(0.6))
    if not words.without_python:
        peers = [*options, *(["--strategies", *words.peers] if words.peers else [])]
        rows += python_rows(words, peers, left(0.8))
    if not words.without_one_rank:
        rows += ours(words, [*options, "--strategies", "plain", "zero3"], 1, left(1))
    facts = {"rows": rows, "date": datetime.date.today().isoformat(), **gpu()}
    if words.json:
        words.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    for line in ratios(rows):
        print(line)
    wrong = different_losses(rows) + [row["strategy"] for row in rows if "error" in row]
    if wrong:
        print("wrong: " + "; ".join(wrong))
    return 1 if wrong else 0


sys.exit(main())

#!/usr/bin/env python3
"""Runs all GPU benchmarks in one call, prints one table and keeps the figures as JSON.

usage: run.py BENCH_GPU [--json FILE] [--short] [--earlier FILE] [options of bench_gpu]

GPT-2 and the fused operations are measured once more with matrix products chosen by measurement
(ACCELERATE_TUNE_PRODUCTS); of that the kernels of three steps are kept too. GPT-2 is also measured with the Python
packages accelerate and transformers where they are installed; where not, their rows are taken over from an earlier file
and marked so.
The libraries of CUDA must be in the library path; where the Python package torch is installed, its own are added.
"""
import argparse
import datetime
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from kernel_times import times
from machine import gpu, library_path


def measured(program, file, options, **variables):
    environment = {**os.environ, "LD_LIBRARY_PATH": library_path(), **variables}
    subprocess.run([program, "--json", str(file), *options], env=environment, stdout=subprocess.DEVNULL, check=True)
    return json.loads(file.read_text(encoding="utf-8"))


def reference_rows(earlier):
    """GPT-2 with the Python packages, eager and compiled, where they are installed."""
    missing = [name for name in ("torch", "accelerate", "transformers") if not importlib.util.find_spec(name)]
    if missing:
        print("no new figures of the Python reference: not installed are", ", ".join(missing), file=sys.stderr)
        kept = json.loads(earlier.read_text(encoding="utf-8")) if earlier else {"rows": []}
        return [{**row, "measured": row.get("measured", kept["date"] + ", another call")} for row in kept["rows"]
                if row.get("mode", "").startswith("Python")]
    script = Path(__file__).with_name("reference.py")
    result = subprocess.run([sys.executable, str(script)], text=True, stdout=subprocess.PIPE, check=False)
    rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    return rows if result.returncode == 0 else [*rows, {"part": "reference", "error": f"ended with {result.returncode}"}]


def tuned_results(program, file, options):
    """Rows and kernel times where products are chosen by measurement."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        results = measured(program, file, [*options, "--parts", "operations", "gpt2", "--trace", str(trace)],
                           ACCELERATE_TUNE_PRODUCTS="true")
        profile = times(trace)
    key = {"gpt2": "mode", "operation": "name"}
    return [{**row, key[row["part"]]: row[key[row["part"]]] + ", tuned"} if "error" not in row else row
            for row in results["rows"]], profile


def table(rows):
    """The figures of all rows, one a line: (what, how, figures)."""
    for row in rows:
        if "error" in row:
            yield row["part"], "failed", row["error"].splitlines()[0]
        elif row["part"] == "gpt2":
            memory = f', {row["peak_gib"]:.2f} GiB' if "peak_gib" in row else ""
            yield (f'GPT-2 {row["model"]} batch {row["batch"]}', row["mode"],
                   f'{row["tokens_per_second"]:,.0f} tokens/s, {row["ms_per_step"]:.2f} ms{memory}'
                   + (f' (not captured: {row["fallback"]})' if row.get("fallback") else "")
                   + (f' ({row["measured"]})' if "measured" in row else ""))
        elif row["part"] == "operation":
            yield (row["name"], "fused / eager",
                   f'{row["fused_ms"]:.3f} / {row["eager_ms"]:.3f} ms = {row["times_faster"]:.2f}x, '
                   f'{row["fused_peak_gib"]:.2f} / {row["eager_peak_gib"]:.2f} GiB')
        else:
            figures = ", ".join(f"{key} {value:,.4g}" for key, value in row.items() if isinstance(value, (int, float)))
            yield row["part"], row.get("fallback", ""), figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--json", type=Path, default=Path("gpu.json"))
    parser.add_argument("--earlier", type=Path, help="figures whose rows of the Python packages may be taken over")
    parser.add_argument("--short", action="store_true", help="without tuned products and the Python reference")
    arguments, others = parser.parse_known_args()
    results = measured(arguments.program, arguments.json, others)
    if not arguments.short:
        tuned, results["profile"] = tuned_results(arguments.program, arguments.json, others)
        results["rows"] += [*tuned, *reference_rows(arguments.earlier)]
    results |= {"date": datetime.date.today().isoformat(), **gpu()}
    results["command"] = " ".join([Path(arguments.program).name, *others])
    arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f'{results["gpu"]}, driver {results["driver"]}, torch {results["torch"]}, {results["date"]}')
    lines = list(table(results["rows"]))
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    for what, how, figures in lines:
        print(f"{what:{widths[0]}}  {how:{widths[1]}}  {figures}")
    if profile := results.get("profile"):
        print(f'batch 16, tuned: {profile["launches"]:.0f} kernels, {profile["work_ms"]:.2f} ms of {profile["span_ms"]:.2f}: '
              + ", ".join(f"{kind} {time:.2f}" for kind, time in profile["by_kind"].items()))


sys.exit(main())

#!/usr/bin/env python3
"""Runs all GPU benchmarks in one call, prints one table and keeps the figures as JSON.

usage: run.py BENCH_GPU [--json FILE] [--short] [options of bench_gpu]

GPT-2 is measured once more with matrix products chosen by measurement (ACCELERATE_TUNE_PRODUCTS), and with the Python
packages accelerate and transformers where they are installed.
The libraries of CUDA must be in the library path; where the Python package torch is installed, its own are added.
"""
import argparse
import datetime
import glob
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path


def library_path():
    spec = importlib.util.find_spec("torch")
    folders = [os.environ.get("LD_LIBRARY_PATH", "")]
    if spec:
        torch = Path(spec.submodule_search_locations[0])
        folders += [str(torch / "lib"), *glob.glob(str(torch.parent / "nvidia" / "*" / "lib"))]
    return ":".join(folder for folder in folders if folder)


def gpu():
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    name, driver = subprocess.run(query, text=True, stdout=subprocess.PIPE, check=True).stdout.splitlines()[0].split(", ")
    return {"gpu": name, "driver": driver}


def measured(program, file, options, **variables):
    environment = {**os.environ, "LD_LIBRARY_PATH": library_path(), **variables}
    subprocess.run([program, "--json", str(file), *options], env=environment, stdout=subprocess.DEVNULL, check=True)
    return json.loads(file.read_text(encoding="utf-8"))


def reference_rows():
    """GPT-2 with the Python packages, eager and compiled, where they are installed."""
    missing = [name for name in ("torch", "accelerate", "transformers") if not importlib.util.find_spec(name)]
    if missing:
        print("no figures of the Python reference: not installed are", ", ".join(missing), file=sys.stderr)
        return []
    script = Path(__file__).with_name("reference.py")
    result = subprocess.run([sys.executable, str(script)], text=True, stdout=subprocess.PIPE, check=False)
    rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    return rows if result.returncode == 0 else [*rows, {"part": "reference", "error": f"ended with {result.returncode}"}]


def table(rows):
    """The figures of all rows, one a line: (what, how, figures)."""
    for row in rows:
        if "error" in row:
            yield row["part"], "failed", row["error"].splitlines()[0]
        elif row["part"] == "gpt2":
            memory = f', {row["peak_gib"]:.2f} GiB' if "peak_gib" in row else ""
            yield (f'GPT-2 {row["model"]} batch {row["batch"]}', row["mode"],
                   f'{row["tokens_per_second"]:,.0f} tokens/s, {row["ms_per_step"]:.2f} ms{memory}'
                   + (f' (not captured: {row["fallback"]})' if row.get("fallback") else ""))
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
    parser.add_argument("--short", action="store_true", help="without tuned products and the Python reference")
    arguments, others = parser.parse_known_args()
    results = measured(arguments.program, arguments.json, others)
    if not arguments.short:
        tuned = measured(arguments.program, arguments.json, [*others, "--parts", "gpt2"], ACCELERATE_TUNE_PRODUCTS="true")
        results["rows"] += [{**row, "mode": row.get("mode", "") + ", tuned"} for row in tuned["rows"]]
        results["rows"] += reference_rows()
    results |= {"date": datetime.date.today().isoformat(), **gpu()}
    results["command"] = " ".join([Path(arguments.program).name, *others])
    arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f'{results["gpu"]}, driver {results["driver"]}, torch {results["torch"]}, {results["date"]}')
    lines = list(table(results["rows"]))
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    for what, how, figures in lines:
        print(f"{what:{widths[0]}}  {how:{widths[1]}}  {figures}")


sys.exit(main())

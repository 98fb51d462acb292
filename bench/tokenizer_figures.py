"""The figures of tokenizers, for run.py: `bench` is its Bench."""

import json
import os
import pathlib
import random
import statistics
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEER_SCRIPT = ROOT / "bench" / "python_peer" / "tokenizers_speed.py"
TOKENIZERS = ROOT / "tests" / "fixtures" / "tokenizers"
NAMES = ("wordpiece_uncased", "bpe_gpt2", "bpe_llama3", "bpe_llama2_byte_fallback", "unigram_sentencepiece")
# What both must agree on.
ANSWERS = ("bytes", "tokens", "ids", "offsets")


def measure(bench):
    with tempfile.TemporaryDirectory(dir=bench.bin.parent) as folder:
        text = pathlib.Path(folder) / "text"
        write_text(text, (1 if bench.quick else 10) * 1_000_000)
        for threads in dict.fromkeys((1, os.cpu_count())):
            for name in NAMES:
                compare(bench, name, text, threads)


def write_text(path, size):
    """Lines of this project's own documents and sources in a random order that is always the same."""
    lines = []
    for pattern in ("*.md", "docs/*.md", "include/**/*.h", "src/**/*.h", "src/**/*.cpp"):
        for file in sorted(ROOT.glob(pattern)):
            lines += [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    random.seed(1)
    with path.open("w", encoding="utf-8") as out:
        while size > 0:
            random.shuffle(lines)
            for line in lines:
                size -= out.write(line + "\n")
                if size <= 0:
                    break


def compare(bench, name, text, threads):
    options = ["--tokenizer", TOKENIZERS / name / "tokenizer.json", "--text", text, "--threads", threads]
    options += ["--repetitions", 3 if bench.quick else 5]
    ours = [bench.bin / "bench_tokenizers", *options]
    python = [bench.peer / "bin" / "python", PEER_SCRIPT, *options]
    what = f"texts to ids, {name}, {threads} thread{'s' if threads > 1 else ''}"
    if not bench.with_python:
        bench.skip(what, "Python's tokenizers", "at least 1.0")
        return
    runs = {"ours": [], "python": []}
    for _ in range(1 if bench.quick else 3):
        runs["ours"].append(json.loads(bench.output(ours)))
        runs["python"].append(json.loads(bench.output(python)))
    for key in ANSWERS:
        values = {run[key] for kind in runs.values() for run in kind}
        bench.require(len(values) == 1, f"{what}: {key} differ: {values}")
    own, peer = (statistics.median(run["megabytes_a_second"] for run in runs[kind]) for kind in ("ours", "python"))
    bench.add(
        what=what,
        ours=f"{own:.1f} MB/s",
        peer=f"{peer:.1f} MB/s",
        peer_name="Python's tokenizers",
        ratio=own / peer,
        ratio_text=f"{own / peer:.2f} of its speed",
        goal="at least 1.0",
        met=own >= peer,
        commands=[bench.shown(ours), bench.shown(python)],
        details=runs,
    )

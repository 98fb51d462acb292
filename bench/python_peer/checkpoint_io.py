"""The files of bench_checkpoint.cpp with Python's safetensors and torch.save, in one process on the CPU.

usage: checkpoint_io.py save|load|open [--megabytes N] [--repetitions N] [--folder DIR]
Prints what it measured as JSON: seconds a megabyte (`save`, `load`) or a file (`open`), in microseconds.
"""

import argparse
import json
import os
import pathlib
import statistics
import tempfile
import time

import safetensors
import safetensors.torch
import torch

TENSORS = 64
MANY = 10_000


class Large(torch.nn.Module):
    def __init__(self, megabytes: int):
        super().__init__()
        for i in range(TENSORS):
            self.register_parameter(f"weight_{i}", torch.nn.Parameter(torch.randn(megabytes * 1_000_000 // TENSORS // 4)))


def peak_megabytes():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError("the kernel does not tell the peak of memory")


def extra_megabytes(action):
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = peak_megabytes()
    action()
    return peak_megabytes() - before


def times_of(contenders, repetitions, items):
    """For each contender {"name", "p50_us", "best_us"}, run in turns after one run that does not count."""
    times = {name: [] for name in contenders}
    for number in range(repetitions + 1):
        names = list(contenders)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            seconds = contenders[name]()
            if number > 0:
                times[name].append(1e6 * seconds / items)
    return [{"name": name, "p50_us": statistics.median(t), "best_us": min(t)} for name, t in times.items()]


def timed(action):
    def run():
        before = time.perf_counter()
        action()
        return time.perf_counter() - before

    return run


def to_disk(path, write):
    """Seconds of writing a new file, and of bringing it to the disk with its name."""
    path.unlink(missing_ok=True)
    before = time.perf_counter()
    write(path)
    for place in (path, path.parent):
        descriptor = os.open(place, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    return time.perf_counter() - before


def measure_save(folder, megabytes, repetitions):
    state = Large(megabytes).state_dict()
    contenders = {
        "safetensors save_file": lambda: to_disk(
            folder / "model.safetensors", lambda path: safetensors.torch.save_file(state, path)
        ),
        "torch.save": lambda: to_disk(folder / "model.bin", lambda path: torch.save(state, path)),
    }
    rows = times_of(contenders, repetitions, megabytes)
    assert torch.equal(safetensors.torch.load_file(folder / "model.safetensors")["weight_63"], state["weight_63"])
    extra = extra_megabytes(contenders["safetensors save_file"])
    return {"megabytes": megabytes, "rows": rows, "extra_megabytes": extra}


def measure_load(folder, megabytes, repetitions):
    saved = Large(megabytes)
    safetensors.torch.save_file(saved.state_dict(), folder / "model.safetensors")
    torch.save(saved.state_dict(), folder / "model.bin")
    model = Large(megabytes)

    def load_safetensors():
        model.load_state_dict(safetensors.torch.load_file(folder / "model.safetensors"))

    def load_archive():
        model.load_state_dict(torch.load(folder / "model.bin", weights_only=True, mmap=True))

    rows = times_of(
        {"load_file, load_state_dict": timed(load_safetensors), "torch.load, load_state_dict": timed(load_archive)},
        repetitions,
        megabytes,
    )
    assert torch.equal(model.weight_63, saved.weight_63)
    return {"megabytes": megabytes, "rows": rows, "extra_megabytes": extra_megabytes(load_safetensors)}


def measure_open(folder, _, repetitions):
    file = folder / "many.safetensors"
    safetensors.torch.save_file({f"layers.{i}.weight": torch.full((4, 4), i) for i in range(MANY)}, file)

    def open_file():
        with safetensors.safe_open(file, framework="pt") as opened:
            assert len(opened.keys()) == MANY

    def all_tensors():
        assert len(safetensors.torch.load_file(file)) == MANY

    return {"tensors": MANY, "rows": times_of({"open": timed(open_file), "open, all tensors": timed(all_tensors)}, repetitions, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("save", "load", "open"))
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--folder")
    args = parser.parse_args()
    measure = {"save": measure_save, "load": measure_load, "open": measure_open}[args.part]
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        print(json.dumps(measure(pathlib.Path(folder), args.megabytes, args.repetitions)))


if __name__ == "__main__":
    main()

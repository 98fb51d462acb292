"""The loaders of bench_data.cpp with torch's DataLoader, prepared by Python's Accelerate, in one process on the CPU.

usage: data_loop.py images --folder DIR [--repetitions N]   the files that `bench_data images` wrote
       data_loop.py skip                                    the first batch after many skipped ones
Prints what it measured as JSON.
"""

import argparse
import json
import pathlib
import statistics
import time

import accelerate
import numpy
import torch
from torch.utils.data import DataLoader, Dataset

BATCH_SIZE = 64


class Images(Dataset):
    def __init__(self, folder: pathlib.Path):
        pixels = numpy.fromfile(folder / "images-idx3-ubyte", dtype=numpy.uint8, offset=16)
        self.images = torch.from_numpy(pixels).view(-1, 28, 28)
        labels = numpy.fromfile(folder / "labels-idx1-ubyte", dtype=numpy.uint8, offset=8)
        self.labels = torch.from_numpy(labels).long()

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index].float() / 255, self.labels[index]


class Numbers(Dataset):
    def __init__(self, size: int):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return index


def sums_of(loader):
    pixels = labels = pairs = 0.0
    for data, target in loader:
        images = data.double().sum((1, 2))
        pixels += images.sum().item()
        labels += target.double().sum().item()
        pairs += images.dot(target.double()).item()
    return [pixels, labels, pairs]


def one_pass(loader):
    """Seconds a sample."""
    samples = 0
    before = time.perf_counter()
    for data, _ in loader:
        samples += len(data)
    return (time.perf_counter() - before) / samples


def images(accelerator, folder: pathlib.Path, repetitions: int):
    dataset = Images(folder)
    # Workers stay from pass to pass, and the first pass does not count: how long it takes to start
    # them is left out.
    loaders = [
        accelerator.prepare(
            DataLoader(
                dataset, batch_size=BATCH_SIZE, shuffle=True, num_workers=workers, persistent_workers=workers > 0
            )
        )
        for workers in range(3)
    ]
    sums = [sums_of(loader) for loader in loaders]
    times = [[] for _ in loaders]
    for repetition in range(repetitions):
        for turn in range(len(loaders)):
            which = (repetition + turn) % len(loaders)
            times[which].append(one_pass(loaders[which]))
    rows = [
        {
            "name": f"{workers} workers",
            "p50_us": 1e6 * statistics.median(seconds),
            "best_us": 1e6 * min(seconds),
            "repetitions": repetitions,
        }
        for workers, seconds in enumerate(times)
    ]
    return {"samples": len(dataset), "sums": sums, "rows": rows}


def skip_once(accelerator, samples: int, batches: int, shuffle: bool):
    loader = accelerator.prepare(DataLoader(Numbers(samples), batch_size=BATCH_SIZE, shuffle=shuffle))
    before = time.perf_counter()
    batch = next(iter(accelerator.skip_first_batches(loader, batches)))
    seconds = time.perf_counter() - before
    if not shuffle and batch.tolist() != list(range(batches * BATCH_SIZE, (batches + 1) * BATCH_SIZE)):
        raise SystemExit("the first batch after the skipped ones is wrong")
    return {
        "name": "shuffled" if shuffle else "in order",
        "samples": samples,
        "skipped": batches,
        "p50_us": 1e6 * seconds,
        "repetitions": 1,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["images", "skip"])
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--repetitions", type=int, default=3)
    args = parser.parse_args()

    torch.set_num_threads(1)
    accelerator = accelerate.Accelerator(cpu=True)
    if args.part == "images":
        results = images(accelerator, args.folder, args.repetitions)
    else:
        # Shuffled, Python lists all samples: 10^9 of them do not fit into memory.
        results = {
            "rows": [
                skip_once(accelerator, 10**9, 10**6, shuffle=False),
                skip_once(accelerator, 10**7, 10**5, shuffle=True),
            ]
        }
    results |= {"torch": torch.__version__, "accelerate": accelerate.__version__}
    print(json.dumps(results), flush=True)


main()

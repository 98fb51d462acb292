"""The same work as bench_tokenizers with the Python package "tokenizers".

usage: tokenizers_speed.py --tokenizer FILE --text FILE [--threads N] [--repetitions N]
"""

import argparse
import json
import os
import statistics
import time

MODULUS = 2_147_483_647


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=5)
    return parser.parse_args()


def main():
    options = arguments()
    # Read by the package when it first works.
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if options.threads > 1 else "false"
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)
    from tokenizers import Tokenizer

    start = time.perf_counter()
    tokenizer = Tokenizer.from_file(options.tokenizer)
    load_seconds = time.perf_counter() - start
    tokenizer.no_truncation()
    tokenizer.no_padding()
    with open(options.text, encoding="utf-8", newline="\n") as file:
        lines = [line.removesuffix("\n") for line in file]
    tokens = ids = offsets = 0
    for encoding in tokenizer.encode_batch(lines):
        tokens += len(encoding.ids)
        for value in encoding.ids:
            ids = (ids * 31 + value) % MODULUS
        for begin, end in encoding.offsets:
            offsets = (offsets * 31 + begin * 7 + end) % MODULUS
    seconds = []
    for _ in range(options.repetitions):
        begin = time.perf_counter()
        encodings = tokenizer.encode_batch(lines)
        seconds.append(time.perf_counter() - begin)
        assert len(encodings) == len(lines)
        # Freed outside of the time, as Python would do it some time later.
        del encodings
    size = sum(len(line.encode()) for line in lines)
    p50 = statistics.median(seconds)
    result = {
        "load_seconds": load_seconds,
        "bytes": size,
        "threads": options.threads,
        "p50_seconds": p50,
        "megabytes_a_second": size / 1e6 / p50,
        "tokens": tokens,
        "ids": ids,
        "offsets": offsets,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

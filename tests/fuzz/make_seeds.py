#!/usr/bin/env python3
"""Writes small valid files of each format for the fuzz targets to begin with.

usage: make_seeds.py folder
"""

import struct
import sys
from pathlib import Path


def idx(code, shape, data):
    return struct.pack(">HBB", 0, code, len(shape)) + struct.pack(f">{len(shape)}I", *shape) + data


def npy(header, data, version=1):
    prefix = 10 if version == 1 else 12
    header += " " * (-(prefix + len(header) + 1) % 64) + "\n"
    size = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + size + header.encode() + data


def npy_dict(descr, shape, order="False"):
    return f"{{'descr': {descr!r}, 'fortran_order': {order}, 'shape': {shape!r}, }}"


def tokens(magic, version, count, data):
    return struct.pack("<256i", magic, version, count, *[0] * 253) + data


# Of the fuzzed bytes of the last two, the first choose how to read the rest: see csv_fuzz.cpp and token_fuzz.cpp.
SEEDS = {
    "idx": [
        idx(0x08, [2, 3], bytes(range(6))),
        idx(0x0D, [1], bytes(4)),
        idx(0x0B, [], bytes(2)),
        idx(0x0E, [0, 7], b""),
    ],
    "npy": [
        npy(npy_dict("<f4", (2, 3)), bytes(24)),
        npy(npy_dict("|u1", (4,), "True"), bytes(4), version=2),
        npy(npy_dict("<i8", (0, 5)), b"", version=3),
        npy(npy_dict("|O", (1,)), bytes(8)),
        npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1L,)}", bytes(4)),
    ],
    "csv": [
        b"\x00a,b,label\n1,2,3\n4,5.5,6\n",
        b'\x01"a, b";c\r\n"1" ; -2e3\r\n\r\nnan;inf\r\n',
        b"\x02\xef\xbb\xbf1\t2\n3\t+4\n",
        b'\x03"the ""x""" y\n1 2\n',
    ],
    "token": [
        b"\x00\x00" + tokens(20240520, 1, 3, bytes(6)),
        b"\x00\x00" + tokens(20240801, 7, 2, bytes(8)),
        b"\x01\x00" + bytes(8),
        b"\x02\x04" + bytes(12),
    ],
}


def main():
    folder = Path(sys.argv[1])
    for name, files in SEEDS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number, content in enumerate(files):
            (folder / name / f"seed_{number}").write_bytes(content)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes small valid files of each format for the fuzz targets to begin with.

usage: make_seeds.py folder
"""

import io
import struct
import sys
import zipfile
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


def safetensors(header, data=b""):
    return struct.pack("<Q", len(header)) + header.encode() + data


def pickle(body):
    return b"\x80\x02" + body + b"."


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def tensor(storage_class, elements, sizes, strides, more=b""):
    """The call of torch._utils that rebuilds a tensor over the storage "0"."""
    storage = b"(" + text("storage") + storage_class + text("0") + text("cpu") + b"K" + bytes([elements]) + b"tQ"
    shape = [b"(" + b"".join(b"K" + bytes([size]) for size in numbers) + b"t" for numbers in (sizes, strides)]
    version = b"v3" if more else b"v2"
    call = b"ctorch._utils\n_rebuild_tensor_" + version + b"\n"
    return call + b"(" + storage + b"K\0" + shape[0] + shape[1] + b"\x89ccollections\nOrderedDict\n)R" + more + b"tR"


def archive(data, storage, checksums=True):
    """A file of torch.save. Without checksums a fuzzer gets past the zip file to what is in it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as zipped:
        for name, content in {"data.pkl": data, "byteorder": b"little", "data/0": storage, "version": b"3\n"}.items():
            zipped.writestr("a/" + name, content)
    content = bytearray(file.getvalue())
    at = -1
    while not checksums and (at := content.find(b"PK\x01\x02", at + 1)) >= 0:
        content[at + 16 : at + 20] = bytes(4)
    return bytes(content)


PLAIN = pickle(b"}(" + text("a") + b"K\x01" + text("b") + b"](NG?\xf8\0\0\0\0\0\0\x8a\x05\0\0\0\0\1e" + b"K\x07\x88u")
FLOATS = pickle(b"}" + text("w") + tensor(b"ctorch\nFloatStorage\n", 6, [2, 3], [3, 1]) + b"s")
SHORTS = pickle(tensor(b"ctorch.storage\nUntypedStorage\n", 8, [4], [1], b"ctorch\nuint16\n"))
NUMPY = pickle(
    b"cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85C\1b\x87R(K\1K\2\x85cnumpy\ndtype\n"
    + text("u4") + b"\x89\x88\x87R(K\x03" + text("<") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89C\x0812345678tb"
)
PROTOCOL_4 = b"\x80\x04\x95" + struct.pack("<Q", 12) + b"}\x94(\x8c\1s\x94\x8f(K\1K\2\x90u."

# Of the fuzzed bytes of csv and token, the first choose how to read the rest: see csv_fuzz.cpp and token_fuzz.cpp.
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
    "safetensors": [
        safetensors("{}      "),
        safetensors(
            '{"__metadata__":{"format":"pt","":"\\u00e9"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', bytes(8)
        ),
        safetensors(
            '{"b":{"data_offsets":[2,2],"shape":[0,3],"dtype":"I64","x":[{"y":null},-1,2.5e3,true]},'
            '"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}\n',
            bytes(2),
        ),
        safetensors('{"a":{"dtype":"BOOL","shape":[],"data_offsets":[0,1]}', bytes(1)),
    ],
    "shard_index": [
        b'{"metadata":{"total_size":24},"weight_map":{"a.b":"model-00001-of-00002.safetensors","c":"d/e.bin"}}',
        b'{\n  "a": "1.bin",\n  "b": "2.bin"\n}\n',
        b'{"x":[1,{"weight_map":{}}],"weight_map":{"a":"../b"},"metadata":{"total_size":2.5e10}}',
        b'{"weight_map":{"\\u00e9\\ud83d\\ude00":"f"},"z":null}',
    ],
    "torch_archive": [
        archive(FLOATS, bytes(24)),
        archive(FLOATS, bytes(24), checksums=False),
        archive(SHORTS, bytes(8), checksums=False),
        archive(PLAIN, b"", checksums=False),
        FLOATS,
        SHORTS,
        PLAIN,
        NUMPY,
        PROTOCOL_4,
        pickle(b"cos\nsystem\n" + text("true") + b"\x85R"),
    ],
}

# Of a manifest the first byte chooses how to read the rest, see manifest_fuzz.cpp; the checksum at its end is put there
# by the fuzz target.
PART = b'{"name": "w", "dtype": "F32", "shape": [3,4], "offset": 8, "bytes": 48, "checksum": "0000000000000001"}'
SHARD = (
    b'{"name": "s", "dtype": "F32", "shape": [1], "shard": {"global_shape": [6], "start": [3]}, "offset": 56, "bytes": 4, '
    b'"checksum": "0000000000000002"}'
)
FILE = b'{"name": "model.safetensors", "bytes": 72, "checksum": "00000000000000ff", "parts": [' + PART + b"," + SHARD + b"]}"
MANIFEST = (
    b'{\n"format": "accelerate-checkpoint",\n"version": 1,\n"library_version": "0.1.0",\n"world_size": 2,\n"step": 400,\n'
    b'"created": "2025-12-31T23:59:59Z",\n"state": {"epoch":3,"lr":[0.1,1e-5,null,true,"x"]},\n"files": [' + FILE + b"]"
)
SEEDS["manifest"] = [b"\x00" + MANIFEST, b"\x01" + MANIFEST, b"\x02[" + FILE + b"]", b"\x01"]


def main():
    folder = Path(sys.argv[1])
    for name, files in SEEDS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number, content in enumerate(files):
            (folder / name / f"seed_{number}").write_bytes(content)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes small valid files of each format for the fuzz targets to begin with, and a list of them as libFuzzer reads it.

usage: make_seeds.py folder
"""

import io
import json
import shutil
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


def record(module, name, state=None):
    """An instance of a class, with its state if it has one."""
    return f"c{module}\n{name}\n".encode() + b")\x81" + (b"" if state is None else state + b"b")


def pairs(entries):
    return b"}(" + b"".join(text(key) + value for key, value in entries.items()) + b"u"


def dcp_size(*sizes):
    return b"ctorch\nSize\n(" + b"".join(b"K" + bytes([size]) for size in sizes) + b"t\x85R"


DCP = "torch.distributed.checkpoint.metadata"
DCP_CHUNK = record(DCP, "ChunkStorageMetadata", pairs({"offsets": dcp_size(2, 0), "sizes": dcp_size(2, 3)}))
DCP_LAYOUT = b"ctorch.serialization\n_get_layout\n" + text("torch.strided") + b"\x85R"
DCP_FORMAT = f"c{DCP}\n_MEM_FORMAT_ENCODING\n".encode() + b"K\0\x85R"
DCP_TENSOR = record(
    DCP,
    "TensorStorageMetadata",
    pairs(
        {
            "properties": record(
                DCP, "TensorProperties", b"(ctorch\nfloat32\n" + DCP_LAYOUT + b"\x89" + DCP_FORMAT + b"\x89t"
            ),
            "size": dcp_size(4, 3),
            "chunks": b"](" + DCP_CHUNK + b"e",
        }
    ),
)
DCP_PLACE = record(
    "torch.distributed.checkpoint.filesystem",
    "_StorageInfo",
    pairs({"relative_path": text("__0_0.distcp"), "offset": b"K\0", "length": b"M\x10\x04"}),
)
DCP_CHUNK_INDEX = record(DCP, "MetadataIndex", pairs({"fqn": text("model.w"), "index": b"K\0", "offset": dcp_size(2, 0)}))
DCP_VALUE_INDEX = record(DCP, "MetadataIndex", pairs({"fqn": text("lr"), "index": b"N"}))
DCP_METADATA = record(
    DCP,
    "Metadata",
    pairs(
        {
            "state_dict_metadata": pairs({"model.w": DCP_TENSOR, "lr": record(DCP, "BytesStorageMetadata")}),
            "planner_data": pairs({"model.w": text("model") + text("w") + b"\x86", "lr": b"K\1\x85"}),
            "storage_data": b"}(" + DCP_CHUNK_INDEX + DCP_PLACE + DCP_VALUE_INDEX + DCP_PLACE + b"u",
            "storage_meta": record(DCP, "StorageMeta", pairs({"save_id": text("1")})),
        }
    ),
)

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

SEEDS["dcp_metadata"] = [
    pickle(DCP_METADATA),
    pickle(record(DCP, "Metadata", pairs({"state_dict_metadata": b"}", "storage_data": b"}"}))),
    pickle(DCP_TENSOR),
]

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

SEEDS["deepspeed"] = [
    b'{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3, '
    b'"reduce_bucket_size": "auto", "offload_param": {"device": "cpu"}}, "bf16": {"enabled": "auto"}}',
    b'{"train_batch_size": 4, "zero_optimization": {}, "optimizer": {"type": "AdamW", "params": {"lr": "auto", '
    b'"betas": [0.9, 0.99]}}, "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto"}}}',
    b'{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"cpu_offload": true, "stage": 1}, "scheduler": '
    b'{"type": "WarmupLR", "params": {"warmup_min_lr": [0, 1], "warmup_max_lr": [2, 3]}}, "amp": {"enabled": false}}',
    b'{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 0}, "fp16": {"loss_scale": 1e3}, '
    b'"scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 9, "cos_min_ratio": 0.1}}, "my": 1}',
    b"eyJ6ZXJvX29wdGltaXphdGlvbiI6IHsic3RhZ2UiOiAzfSwgInRyYWluX2JhdGNoX3NpemUiOiAyfQ==",
]
SEEDS["config"] = [
    b"compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_machines: 1\n"
    b"num_processes: 8\nuse_cpu: false\ngpu_ids: 0,1\nmain_process_port: null\n",
    b"distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
    b"  fsdp_offload_params: 'yes'\nfp16: true\n",
    b"distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3, gradient_clipping: 1.5, offload_param_device: cpu}\n"
    b"dynamo_backend: INDUCTOR\n",
    b'{"distributed_type": "NO", "machine_rank": 0, "debug": true, "tpu_env": ["A=1"], "fp8_config": {"backend": "TE"}}',
    b"compute_environment: AMAZON_SAGEMAKER\ndistributed_type: 'NO'\nec2_instance_type: a\niam_role_name: b\n",
    b"a: &a [1, 2]\nb: [*a, *a]\n? c\n: d\ne: |\n  f\n  g\nh: !!python/tuple [1]\n",
    b"distributed_type: MULTI_CPU\nmpirun_config:\n  mpirun_hostfile: \"a\\tb\"\nnum_processes: -1\n",
]

# A tokenizer.json, a zero byte and a text: each with other components.
TEXT = "The caf\u00e9's e\u0301t\u00e9 \u4e2d\u6587 12,5 <s>x</s>  \U0001f600 \u2581a\n".encode()
LETTERS = {letter: number for number, letter in enumerate("abcdefgh\u0120\u2581tsx")}
BPE = {"type": "BPE", "vocab": {**LETTERS, "ab": 20, "abc": 21, "<0x41>": 22, "?": 23}, "merges": [["a", "b"], "ab c"]}
UNIGRAM = {
    "type": "Unigram",
    "unk_id": 0,
    "vocab": [["?", 0.0], ["\u2581", -1.5], ["a", -2.0], ["caf", -3.25], ["<0xC3>", -9]],
}
WORD_PIECE = {
    "type": "WordPiece",
    "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "the": 3, "caf": 4, "##e": 5},
    "unk_token": "[UNK]",
    "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 20,
}
SPECIAL = {"single_word": True, "lstrip": True, "rstrip": True, "normalized": True, "special": True}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
META = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}
PIECES = [{"SpecialToken": {"id": "c", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
SPLIT = {
    "type": "Split",
    "pattern": {"Regex": "(?i:'s)|\\p{L}+|[a-z&&[^b]]{1,3}+"},
    "behavior": "MergedWithNext",
    "invert": True,
}
TOKENIZERS = [
    {
        "added_tokens": [
            {"id": 30, "content": "<s>", **SPECIAL},
            {"id": 31, "content": "x", **SPECIAL, "normalized": False},
        ],
        "pre_tokenizer": BYTE_LEVEL,
        "post_processor": {
            "type": "RobertaProcessing",
            "sep": ["</s>", 2],
            "cls": ["<s>", 0],
            "trim_offsets": True,
            "add_prefix_space": False,
        },
        "decoder": BYTE_LEVEL,
        "model": {**BPE, "ignore_merges": True, "unk_token": "?", "fuse_unk": True, "byte_fallback": True},
    },
    {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}],
        },
        "pre_tokenizer": META,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": PIECES,
            "pair": [*PIECES, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"c": {"id": "c", "ids": [1], "tokens": ["c"]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                META,
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {**UNIGRAM, "byte_fallback": True},
    },
    {
        "truncation": {"max_length": 8, "strategy": "LongestFirst", "stride": 1},
        "padding": {
            "strategy": {"Fixed": 8},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        },
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": WORD_PIECE,
    },
    {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{"type": name} for name in ("NFD", "StripAccents", "Nmt", "Lowercase", "NFC")],
        },
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                SPLIT,
                {"type": "Digits", "individual_digits": True},
                {"type": "Punctuation", "behavior": "Contiguous"},
                {"type": "Whitespace"},
            ],
        },
        "decoder": {"type": "CTC", "pad_token": "a", "word_delimiter_token": "|", "cleanup": True},
        "model": {**BPE, "continuing_subword_prefix": "", "end_of_word_suffix": "</w>"},
    },
    {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Precompiled", "precompiled_charsmap": "CAAAAAAEAAAAAQAAYQBiAA=="},
                {"type": "Prepend", "prepend": "_"},
                {"type": "Strip", "strip_left": True, "strip_right": True},
            ],
        },
        "decoder": {"type": "BPEDecoder", "suffix": "e"},
        "model": {"type": "WordLevel", "vocab": {"a": 0, "?": 1}, "unk_token": "?"},
    },
]
SEEDS["tokenizer"] = [json.dumps(tokenizer).encode() + b"\0" + TEXT for tokenizer in TOKENIZERS]

SEEDS["http"] = [
    b"GET / HTTP/1.1\r\nHost: localhost:8642\r\n\r\n",
    b"HEAD /api/state?runs=a%20b,c&x=+ HTTP/1.1\r\nHost: [::1]\r\nCookie: a=1; token=z\r\nConnection: close\r\n\r\nGET",
    b"GET /events HTTP/1.0\r\nContent-Length: 0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
]


def record(kind, payload):
    """A record without its checksum, which the target mends."""
    return struct.pack("<IHBB", 0, len(payload), kind, 0) + payload


RANK = record(1, b"\x01" + b"\x80\x01" + b"\x00\x02\x00\x00\x05" + b"\x04here" + b"\x05train" + b"\x050.1.0")
STEPS = record(2, b"\x01\x04data") + record(3, b"\x64\x03\x02\x40\x30\x20\x01\x01\x08")
VALUES = record(2, b"\x02\x04loss") + record(4, b"\x64\x06\x01\x02" + struct.pack("<d", 2.5))
LAUNCHER = record(9, b"\x01\x00\x05") + record(10, b"\x02\x00\x01\x04line") + record(11, b"\x03\x00\x02\x06failed")
DEVICES = record(13, b"\x01\x03\x00\x03GPU\x40") + record(14, b"\x05\x01" + struct.pack("<d", 0.5) + b"\x20" + bytes(16))
SEEDS["run_record"] = [
    RANK + STEPS + VALUES + record(15, b"\x70\x00"),
    RANK + record(5, b"\x09\x01\x01\x01a\x01b") + record(6, b"\x01\x02\x00\x00\x04save") + record(7, b"\x01\x02\x03"),
    RANK + LAUNCHER + DEVICES + record(8, b"\x01n\x01v\x01s\x01") + record(12, b"\x01\x01"),
]


def main():
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    for name, files in SEEDS.items():
        (folder / name).mkdir(parents=True)
        paths = [folder / name / f"seed_{number}" for number in range(len(files))]
        for path, content in zip(paths, files):
            path.write_bytes(content)
        (folder / f"{name}.list").write_text(",".join(map(str, paths)))


if __name__ == "__main__":
    main()

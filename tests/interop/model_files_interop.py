#!/usr/bin/env python3
"""Safetensors files and saved models between Python and C++, in both directions.

usage: model_files_interop.py model_files_peer
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import accelerate
import safetensors
import safetensors.torch
import torch

PEER = ""
TYPES = [
    *("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32"),
    *("float64", "complex64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    "bool",
]


def call(*words):
    result = subprocess.run([PEER, *map(str, words)], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, f"{words}: {result.returncode}\n{result.stdout}{result.stderr}"


def bits(tensor):
    return bytes(tensor.contiguous().view(-1).view(torch.uint8).tolist())


def pattern(name):
    """Byte i is (7 i + 13) mod 251; of bools, its lowest bit."""
    values = (torch.arange(96) * 7 + 13) % 251
    values = (values % 2 if name == "bool" else values).to(torch.uint8)
    return values.view(getattr(torch, name)).view(2, 3, -1)


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        self.scale = torch.nn.Parameter(torch.randn(1))
        self.register_buffer("count", torch.arange(3))
        self.head = torch.nn.Linear(4, 2)


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(5, 3)
        self.mid = torch.nn.Linear(3, 3)
        self.head = torch.nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight


MODELS = {"small": Small, "tied": Tied}
# One file, shards, a file for each tensor.
SIZES = ["10GB", "0.06KB", "0.001KB"]


class InteropTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def assert_same(self, state, path):
        """The tensors of a state dict and of a file are the same, bit by bit."""
        loaded = safetensors.torch.load_file(path)
        self.assertEqual(sorted(state), sorted(loaded))
        for name, tensor in state.items():
            self.assertEqual((tensor.dtype, tensor.shape), (loaded[name].dtype, loaded[name].shape), name)
            self.assertEqual(bits(tensor.detach()), bits(loaded[name]), name)

    def test_python_reads_every_type_that_was_written(self):
        file = self.folder / "w.safetensors"
        call("patterns", file)
        with safetensors.safe_open(file, framework="pt") as opened:
            self.assertEqual(opened.metadata(), {"format": "pt", "note": "café"})
        loaded = safetensors.torch.load_file(file)
        self.assertEqual(sorted(loaded), sorted(TYPES))
        for name, tensor in loaded.items():
            self.assertEqual(str(tensor.dtype), "torch." + name)
            self.assertEqual(tensor.shape, pattern(name).shape)
            self.assertEqual(bits(tensor), bits(pattern(name)), name)

    def test_every_type_that_python_wrote_is_read(self):
        file = self.folder / "w.safetensors"
        safetensors.torch.save_file({name: pattern(name) for name in TYPES}, file)
        call("check", file)

    def test_files_are_written_as_python_writes_them(self):
        theirs, ours = self.folder / "theirs.safetensors", self.folder / "ours.safetensors"
        tensors = {name: pattern(name) for name in TYPES}
        tensors |= {"": torch.ones(1), 'q"\n\x7f\u00e9\U0001f600/': torch.zeros(2, 0), "scalar": torch.tensor(2.5)}
        safetensors.torch.save_file(tensors, theirs, metadata={"format": "pt"})
        call("copy", theirs, ours)
        self.assertEqual(theirs.read_bytes(), ours.read_bytes())

    def test_python_loads_models_that_were_saved(self):
        for kind, make in MODELS.items():
            for size in SIZES:
                for form in ("safetensors", "bin"):
                    with self.subTest(kind, size=size, form=form):
                        folder = self.folder / f"{kind}-{size}-{form}"
                        call("save", kind, folder, size, form, self.folder / "state.safetensors")
                        model = make()
                        accelerate.load_checkpoint_in_model(model, folder, device_map={"": "cpu"})
                        self.assert_same(model.state_dict(), self.folder / "state.safetensors")

    def test_models_that_python_saved_are_loaded(self):
        accelerator = accelerate.Accelerator(cpu=True)
        for kind, make in MODELS.items():
            for size in SIZES:
                for safe in (True, False):
                    with self.subTest(kind, size=size, safe=safe):
                        folder = self.folder / f"{kind}-{size}-{safe}"
                        model = make()
                        accelerator.save_model(model, folder, max_shard_size=size, safe_serialization=safe)
                        call("load", kind, folder, self.folder / "state.safetensors")
                        self.assert_same(model.state_dict(), self.folder / "state.safetensors")

    def test_both_save_the_same_model_into_the_same_files(self):
        accelerator = accelerate.Accelerator(cpu=True)
        for size in SIZES:
            with self.subTest(size=size):
                ours, theirs = self.folder / f"ours-{size}", self.folder / f"theirs-{size}"
                call("save", "small", ours, size, "safetensors", self.folder / "state.safetensors")
                model = Small()
                model.load_state_dict(safetensors.torch.load_file(self.folder / "state.safetensors"))
                accelerator.save_model(model, theirs, max_shard_size=size)
                names = sorted(path.name for path in theirs.iterdir())
                self.assertEqual(sorted(path.name for path in ours.iterdir()), names)
                for name in names:
                    self.assertEqual((ours / name).read_bytes(), (theirs / name).read_bytes(), name)

    def test_tied_tensors_of_safetensors_own_model_files_go_both_ways(self):
        model = Tied()
        file = self.folder / "model.safetensors"
        safetensors.torch.save_model(model, str(file))
        call("load", "tied", file, self.folder / "state.safetensors")
        self.assert_same(model.state_dict(), self.folder / "state.safetensors")

        call("save", "tied", self.folder / "ours", "10GB", "safetensors", self.folder / "state.safetensors")
        with safetensors.safe_open(self.folder / "ours" / "model.safetensors", framework="pt") as opened:
            self.assertEqual(opened.metadata(), {"format": "pt", "head.weight": "embed.weight"})
        missing, unexpected = safetensors.torch.load_model(model, self.folder / "ours" / "model.safetensors")
        self.assertEqual((list(missing), list(unexpected)), ([], []))
        self.assert_same(model.state_dict(), self.folder / "state.safetensors")

    def test_the_index_says_where_each_tensor_is(self):
        call("save", "tied", self.folder / "m", "0.06KB", "bin", self.folder / "state.safetensors")
        index = json.loads((self.folder / "m" / "pytorch_model.bin.index.json").read_text())
        self.assertEqual(index["metadata"], {"total_size": 4 * (15 + 9 + 3)})
        for name, file in index["weight_map"].items():
            self.assertIn(name, torch.load(self.folder / "m" / file, weights_only=True))


if __name__ == "__main__":
    PEER = sys.argv.pop(1)
    unittest.main()

#!/usr/bin/env python3
"""Files of torch.save between Python and C++, in both directions.

usage: torch_archive_interop.py torch_archive_peer
"""

import collections
import os
import pickle
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

import numpy
import torch

PEER = ""
REFUSED = 3



def call(*words):
    """The exit code of the C++ program and what it printed."""
    result = subprocess.run([PEER, *map(str, words)], capture_output=True, text=True, timeout=300)
    return result.returncode, result.stdout + result.stderr


def bits(tensor):
    """The elements as bytes, in the order of the indices, so that every type can be compared."""
    return bytes(tensor.resolve_conj().resolve_neg().flatten().clone(memory_format=torch.contiguous_format).view(torch.uint8).tolist())


def parameters():
    torch.manual_seed(11)
    return [torch.randn(*shape).requires_grad_() for shape in ((3, 4), (5,), (2, 2))]


def loss_of(p):
    return p[0].pow(2).sum() + (p[1] - 3).pow(4).mean() + (p[2] * p[0].sum()).sin().sum()


def train(p, optimizer, steps):
    def closure():
        optimizer.zero_grad()
        loss = loss_of(p)
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)


def groups(p, first, second):
    return [{"params": p[:2], **first}, {"params": p[2:], **second}]


# The name of the optimizer; the options of its first and second group.
OPTIMIZERS = [
    ("SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, {"lr": 0.02, "momentum": 0.5}),
    ("SGD", {"lr": 0.01}, {"lr": 0.02}),
    ("Adam", {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1}, {"lr": 0.02, "eps": 1e-6}),
    ("Adam", {"lr": 0.01, "amsgrad": True}, {"lr": 0.02, "amsgrad": True}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.2}, {"lr": 0.02, "betas": (0.5, 0.6)}),
    ("AdamW", {"lr": 0.01, "amsgrad": True}, {"lr": 0.02, "amsgrad": True, "foreach": False}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.1}, {"lr": 0.2, "eps": 1e-6}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True, "alpha": 0.9}, {"lr": 0.02, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.01}, {"lr": 0.02, "eps": 1e-6}),
    ("LBFGS", {"lr": 0.1, "max_iter": 3, "history_size": 5}, None),
    ("LBFGS", {"lr": 0.1, "max_iter": 3, "line_search_fn": "strong_wolfe"}, None),
]


def make_optimizer(kind, p, first, second):
    if second is None:
        return getattr(torch.optim, kind)(p, **first)
    return getattr(torch.optim, kind)(groups(p, first, second), lr=1.0)


class Interop(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return Path(self.folder.name) / name

    def through_cpp(self, value, **options):
        """What is left of a value that C++ has read and written again."""
        torch.save(value, self.path("in.pt"), **options)
        code, output = call("copy", self.path("in.pt"), self.path("out.pt"))
        self.assertEqual(code, 0, output)
        return torch.load(self.path("out.pt"), weights_only=True)

    def refusal_of(self, path):
        code, output = call("copy", path, self.path("refused.pt"))
        self.assertEqual(code, REFUSED, output)
        self.assertFalse(self.path("refused.pt").exists())
        return output

    def assert_same(self, left, right):
        self.assertIs(type(left), type(right))
        if isinstance(left, torch.Tensor):
            self.assertEqual((left.dtype, left.shape, left.stride()), (right.dtype, right.shape, right.stride()))
            self.assertEqual(bits(left), bits(right))
        elif isinstance(left, dict):
            self.assertEqual(list(left), list(right))
            for key in left:
                self.assert_same(left[key], right[key])
        elif isinstance(left, (list, tuple)):
            self.assertEqual(len(left), len(right))
            for one, other in zip(left, right):
                self.assert_same(one, other)
        elif isinstance(left, float):
            self.assertEqual(left.hex(), right.hex())
        else:
            self.assertEqual(left, right)

    def test_values_of_python_come_back_from_cpp(self):
        shared = [1, 2]
        value = {
            "none": None, "truths": [True, False], "integers": [0, 255, 256, -1, 2**31, -(2**63), 2**63 - 1],
            "large": [2**63, -(2**70), 2**1000], "numbers": [0.1, -0.0, float("inf"), float("nan")],
            "texts": ["", "text", "äß€😀", "x" * 70000], "bytes": [b"", b"abc", bytes(range(256))],
            "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)], "set": {1, 2, 3},
            "size": torch.Size([2, 3]), "types": [torch.float32, torch.bfloat16, torch.uint16],
            "devices": [torch.device("cpu"), torch.device("cuda", 1), torch.device("cuda")],
            "ordered": collections.OrderedDict(b=1, a=2), "again": [shared, shared], 7: "integer", (1, "x"): "tuple",
            None: 0, 0.5: 1, b"k": 2, "many": list(range(5000)), "dicts": {i: {"a": i} for i in range(2000)},
        }
        for protocol in (2, 3, 4, 5):
            self.assert_same(self.through_cpp(value, pickle_protocol=protocol), value)

    def test_tensors_of_every_type_come_back_from_cpp(self):
        names = """float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 complex64 complex128 complex32 uint16 uint32
                   uint64 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu""".split()
        raw = torch.arange(240, dtype=torch.uint8)[:192]
        tensors = {name: raw.clone().view(getattr(torch, name)) for name in names}
        tensors["bool"] = torch.tensor([True, False])
        for protocol in (2, 5):
            self.assert_same(self.through_cpp(tensors, pickle_protocol=protocol), tensors)

    def test_views_and_shared_memory_come_back_from_cpp(self):
        base = torch.arange(24.0).view(2, 3, 4)
        value = [base, base[1], base.T if base.dim() == 2 else base.permute(2, 0, 1), base[:, 1:, ::2],
                 torch.tensor(2.5), torch.empty(0, 3), torch.ones(1).expand(3, 4),
                 torch.tensor([1 + 2j]).conj(), torch.tensor([1 + 2j]).conj().imag,
                 torch.nn.Parameter(torch.ones(2)), torch.ones(2, requires_grad=True)]
        back = self.through_cpp(value)
        plain = [item.detach() for item in value]
        self.assert_same([item.detach() for item in back], plain)
        self.assertEqual(back[0].untyped_storage().data_ptr(), back[3].untyped_storage().data_ptr())
        self.assertTrue(back[7].is_conj() and back[8].is_neg())
        back[1].fill_(-1)
        self.assertEqual(back[0][1, 0, 0], -1)

    def test_a_state_dict_of_a_module_comes_back_from_cpp(self):
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        back = self.through_cpp(model.state_dict())
        self.assert_same(back, collections.OrderedDict(model.state_dict()))
        model.load_state_dict(back)

    def test_values_of_numpy_and_counters_are_read(self):
        value = {"scalars": [numpy.float64(2.5), numpy.float32(0.5), numpy.int64(-3), numpy.bool_(True), numpy.uint8(7)],
                 "counter": collections.Counter([30, 80, 80])}
        expected = {"scalars": [2.5, 0.5, -3, True, 7], "counter": {30: 1, 80: 2}}
        for protocol in (2, 4):
            self.assert_same(self.through_cpp(value, pickle_protocol=protocol), expected)
        for array in (numpy.arange(6, dtype=numpy.uint32), numpy.arange(6.0).reshape(2, 3).T):
            torch.save(array, self.path("in.pt"))
            self.assertIn("a NumPy array", self.refusal_of(self.path("in.pt")))  # read, but not to be written

    def test_files_without_checksums_are_read(self):
        torch.serialization.set_crc32_options(False)
        try:
            value = {"a": torch.arange(5.0)}
            self.assert_same(self.through_cpp(value), value)
        finally:
            torch.serialization.set_crc32_options(True)

    def test_values_of_cpp_are_read_by_python(self):
        self.assertEqual(call("write", self.path("all.pt"))[0], 0)
        for options in ({}, {"mmap": True}):
            value = torch.load(self.path("all.pt"), weights_only=True, **options)
            tensors = value.pop("tensors")
            for name, tensor in tensors.items():
                self.assertEqual(tensor.dtype, getattr(torch, name))
                expected = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0]).to(tensor.dtype)
                self.assertEqual(bits(tensor), bits(expected), name)
            self.assertEqual(len(tensors), 19)
            base = torch.arange(24.0).view(2, 3, 4)
            self.assert_same(value.pop("transposed"), base.transpose(0, 2))
            self.assert_same(value.pop("part"), base[1])
            self.assert_same(value.pop("scalar"), torch.tensor(2.5))
            self.assert_same(value.pop("hollow"), torch.empty(0, 3))
            self.assert_same(value.pop("conjugate"), torch.ones(3, dtype=torch.complex64).mul_(1 + 1j).conj())
            whole, part, floats = value.pop("shared")
            self.assert_same(whole, torch.arange(6, dtype=torch.int32))
            self.assertEqual(part.untyped_storage().data_ptr(), whole.untyped_storage().data_ptr())
            self.assert_same(floats, whole.view(torch.float32))
            self.assert_same(value, {
                "none": None, "truths": [True, False], "integers": [0, 255, 256, -1, 2**31 - 1, -(2**31), 2**32, -(2**63)],
                "large": -(2**64) - 1, "numbers": [0.1, -0.0, float("inf")], "text": "ä😀", "bytes": b"\x00\x7f\x80\xff",
                "no bytes": b"", "tuple": (1, ()), "set": {1, 2}, "size": torch.Size([2, 3]), "type": torch.bfloat16,
                "devices": [torch.device("cpu"), torch.device("cuda:1")], "ordered": collections.OrderedDict(b=1, a=2),
                "empty": [[], {}, ()], 3: "integer key", (1, "x"): "tuple key",
            })

    def test_the_archive_of_cpp_is_a_sound_zip_file(self):
        self.assertEqual(call("write", self.path("all.pt"))[0], 0)
        with zipfile.ZipFile(self.path("all.pt")) as archive:
            self.assertIsNone(archive.testzip())
            self.assertEqual(archive.namelist()[0], "all/data.pkl")
            self.assertIn("all/.data/serialization_id", archive.namelist())

    def test_optimizers_go_on_in_cpp_and_back_in_python(self):
        for kind, first, second in OPTIMIZERS:
            with self.subTest(kind=kind, options=first):
                p = parameters()
                optimizer = make_optimizer(kind, p, first, second)
                train(p, optimizer, 3)
                torch.save({"parameters": [x.detach() for x in p], "optimizer": optimizer.state_dict()}, self.path("in.pt"))
                code, output = call("train", kind, 4, self.path("in.pt"), self.path("out.pt"))
                self.assertEqual(code, 0, output)
                train(p, optimizer, 4)
                resumed = torch.load(self.path("out.pt"), weights_only=True)
                for mine, theirs in zip(p, resumed["parameters"]):
                    torch.testing.assert_close(theirs, mine.detach(), rtol=1e-5, atol=1e-6)
                self.assert_state_close(resumed["optimizer"], optimizer.state_dict())
                # Back: Python takes the state of C++ and goes on as if nothing had happened.
                q = [x.clone().requires_grad_() for x in resumed["parameters"]]
                other = make_optimizer(kind, q, {"lr": 0.5}, None if second is None else {"lr": 0.5})
                other.load_state_dict(resumed["optimizer"])
                train(p, optimizer, 4)
                train(q, other, 4)
                for mine, theirs in zip(p, q):
                    torch.testing.assert_close(theirs, mine, rtol=1e-5, atol=1e-6)

    def assert_state_close(self, left, right):
        """Of two state_dicts: the same keys and kinds, close numbers."""
        self.assertEqual(list(left), list(right))
        for mine, theirs in zip(left["param_groups"], right["param_groups"]):
            mine, theirs = ({k: v for k, v in group.items() if k != "foreach"} for group in (mine, theirs))
            self.assertEqual(mine, theirs)
        for number, state in right["state"].items():
            kept = {name: value for name, value in state.items() if value is not None}
            self.assertEqual(set(left["state"].get(number, {})), set(kept))
            for name, value in kept.items():
                if isinstance(value, torch.Tensor):
                    other = left["state"][number][name]
                    self.assertEqual(other.dtype, value.dtype)
                    torch.testing.assert_close(other, value, rtol=1e-5, atol=1e-5)

    def test_options_that_change_the_numbers_are_refused_by_name(self):
        p = parameters()
        for kind, options, name in (("Adam", {"maximize": True}, "maximize"), ("NAdam", {}, "momentum_decay"),
                                    ("RAdam", {}, "amsgrad"), ("AdamW", {}, "decoupled_weight_decay")):
            optimizer = make_optimizer(kind, p, options, options)
            train(p, optimizer, 1)
            torch.save({"parameters": [x.detach() for x in p], "optimizer": optimizer.state_dict()}, self.path("in.pt"))
            code, output = call("train", "Adam", 1, self.path("in.pt"), self.path("out.pt"))
            self.assertEqual(code, REFUSED, output)
            self.assertIn(f"'{name}'", output)
            self.assertIn("group 1", output)

    def test_code_in_a_file_is_refused_by_name_and_not_run(self):
        marker = self.path("marker")

        class Evil:
            def __init__(self, function, *arguments):
                self.call = (function, arguments)

            def __reduce__(self):
                return self.call

        for function, arguments, name in ((os.system, (f"touch {marker}",), "posix.system"),
                                          (eval, (f"open({str(marker)!r}, 'w')",), "builtins.eval"),
                                          (subprocess.Popen, (["touch", str(marker)],), "subprocess.Popen")):
            torch.save({"a": Evil(function, *arguments)}, self.path("in.pt"), pickle_protocol=4)
            output = self.refusal_of(self.path("in.pt"))
            self.assertIn(f"'{name}'", output)
            self.assertIn("nothing of the file was executed", output)
        self.assertFalse(marker.exists())

    def test_other_objects_are_refused_by_name(self):
        for value, name in ((torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"), (3j, "complex"),
                            (torch.ones(2).to_sparse(), "_rebuild_sparse_tensor"), (frozenset([1]), "frozenset"),
                            (torch.ones(2, device="meta"), "_rebuild_meta_tensor_no_storage")):
            torch.save(value, self.path("in.pt"))
            self.assertIn(name, self.refusal_of(self.path("in.pt")))

    def test_other_files_are_refused_in_words(self):
        torch.save([1], self.path("legacy.pt"), _use_new_zipfile_serialization=False)
        self.assertIn("before torch 1.6", self.refusal_of(self.path("legacy.pt")))
        self.path("bare.pkl").write_bytes(pickle.dumps([1]))
        self.assertIn("a bare pickle", self.refusal_of(self.path("bare.pkl")))
        torch.jit.script(torch.nn.Linear(1, 1)).save(str(self.path("script.pt")))
        self.assertIn("TorchScript", self.refusal_of(self.path("script.pt")))
        with zipfile.ZipFile(self.path("packed.pt"), "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a/data.pkl", b"\x80\x02N." + bytes(100))
        self.assertIn("is compressed", self.refusal_of(self.path("packed.pt")))


if __name__ == "__main__":
    PEER = sys.argv.pop(1)
    unittest.main(verbosity=2, warnings="ignore")

#!/usr/bin/env python3
"""`accelerate merge-weights` as a user runs it."""

import json
import struct
import unittest
from pathlib import Path

from config_program import ProgramTest


def safetensors(tensors):
    """The bytes of a file of byte tensors: name -> bytes."""
    header, data = {}, b""
    for name, content in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(content)], "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensors_of(path):
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    header.pop("__metadata__", None)
    return {name: content[8 + size :][slice(*entry["data_offsets"])] for name, entry in header.items()}


class MergeWeights(ProgramTest):
    def setUp(self):
        super().setUp()
        self.source = self.folder / "model"
        self.source.mkdir()
        self.first = self.source / "model-00001-of-00002.safetensors"
        self.second = self.source / "model-00002-of-00002.safetensors"
        self.first.write_bytes(safetensors({"a": b"12345", "b": b"67"}))
        self.second.write_bytes(safetensors({"c": b"89"}))
        (self.source / "model.safetensors.index.json").write_text(
            json.dumps(
                {
                    "metadata": {"total_size": 9},
                    "weight_map": {"a": self.first.name, "b": self.first.name, "c": self.second.name},
                }
            )
        )

    def merge(self, *arguments):
        return self.run_program("merge-weights", *arguments)

    def test_shards_become_one_file(self):
        result = self.merge("model", "merged")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("3 tensors, 9 B, in 1 file: ", result.stdout)
        self.assertEqual(
            tensors_of(self.folder / "merged" / "model.safetensors"), {"a": b"12345", "b": b"67", "c": b"89"}
        )
        self.assertTrue(self.first.exists())

    def test_the_target_may_be_a_file(self):
        self.assertEqual(self.merge("model/model.safetensors.index.json", "one.safetensors").returncode, 0)
        self.assertEqual(len(tensors_of(self.folder / "one.safetensors")), 3)

    def test_a_model_can_be_spread_otherwise(self):
        large = self.source / "large.safetensors"
        large.write_bytes(safetensors({"a": b"a" * 900, "b": b"b" * 900, "c": b"c"}))
        result = self.merge(large, "shards", "--max-shard-size", "1KB")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("3 tensors, 1.8 KiB, in 2 files: ", result.stdout)
        index = json.loads((self.folder / "shards" / "model.safetensors.index.json").read_text())
        self.assertEqual(set(index["weight_map"]), {"a", "b", "c"})
        self.assertNotEqual(index["weight_map"]["a"], index["weight_map"]["b"])

    def test_sizes_are_written_in_either_kind_of_unit_and_a_tensor_that_is_larger_is_named(self):
        large = self.source / "large.safetensors"
        large.write_bytes(safetensors({"a": b"a" * 1024, "b": b"b" * 1500, "c": b"c"}))
        result = self.merge(large, "shards", "--max-shard-size", "1KiB")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(
            result.stderr,
            "accelerate merge-weights: 'b' has 1.5 KiB, more than --max_shard_size 1KiB: its file is larger\n",
        )
        self.assertEqual(self.merge(large, "more", "--max-shard-size", "2KB").stderr, "")
        self.assertIn("its file is larger, as are those of 1 smaller tensor\n",
                      self.merge(large, "others", "--max-shard-size", "1KB").stderr)

    def test_what_is_there_is_replaced_only_if_asked(self):
        self.merge("model", "merged")
        refused = self.merge("model", "merged")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("the target holds a model", refused.stderr)
        self.assertIn("--overwrite", refused.stderr)
        self.assertEqual(self.merge("model", "merged", "--overwrite").returncode, 0)

    def test_the_source_can_be_removed(self):
        self.assertEqual(self.merge("model", "merged", "--remove_checkpoint_dir").returncode, 0)
        self.assertFalse(self.first.exists())
        self.assertFalse(self.second.exists())

    def test_errors_say_what_to_do(self):
        pickles = self.merge("model", "merged", "--unsafe_serialization")
        self.assertEqual(pickles.returncode, 2)
        self.assertIn("only safetensors files can be written", pickles.stderr)
        distributed = self.folder / "dcp"
        distributed.mkdir()
        (distributed / ".metadata").write_bytes(b"not a pickle")
        refused = self.merge("dcp", "merged")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("it does not begin like a pickle", refused.stderr)
        self.assertIn(".metadata", refused.stderr)
        frozen = self.merge("model", "merged", "--exclude_frozen_parameters")
        self.assertEqual(frozen.returncode, 2)
        self.assertIn("only a checkpoint of DeepSpeed", frozen.stderr)
        missing = self.merge("nowhere", "merged")
        self.assertEqual(missing.returncode, 2)
        self.assertIn("nowhere", missing.stderr)
        self.second.write_bytes(b"short")
        damaged = self.merge("model", "merged")
        self.assertEqual(damaged.returncode, 1)
        self.assertIn(self.second.name, damaged.stderr)
        self.assertFalse((self.folder / "merged").exists())

    def test_what_sharded_runs_of_python_leave_is_merged(self):
        fixtures = Path(__file__).resolve().parent.parent / "fixtures"
        run = fixtures / "dcp_fsdp2"
        result = self.merge(run / "pytorch_model_fsdp_0", "fsdp")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        expected = tensors_of(run / "expected_model.safetensors")
        self.assertEqual(tensors_of(self.folder / "fsdp" / "model.safetensors"), expected)
        self.assertEqual(self.merge(run / "optimizer_0", "optimizer.safetensors").returncode, 0)
        self.assertEqual(
            tensors_of(self.folder / "optimizer.safetensors"), tensors_of(run / "expected_optimizer.safetensors")
        )
        for stage in ("stage1", "stage2", "stage3"):
            run = fixtures / "deepspeed_checkpoints" / stage
            tag = (run / "latest").read_text().strip()
            for name, flags in ((stage, ()), (stage + "_tag", ("--tag", tag, "--max_shard_size", "1KB"))):
                result = self.merge(run, name, *flags)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                merged = {}
                for file in (self.folder / name).glob("*.safetensors"):
                    merged.update(tensors_of(file))
                self.assertEqual(merged, tensors_of(run / "expected_model.safetensors"))
        kept = self.merge(run, "gone", "--remove_checkpoint_dir")
        self.assertEqual(kept.returncode, 2)
        self.assertIn("hold the state of the optimizer too", kept.stderr)

    def test_help_names_all_kinds_of_sources(self):
        text = self.merge("--help").stdout
        for part in (".distcp", "pytorch_model_fsdp_0", "DeepSpeed", "--tag", "--exclude_frozen_parameters"):
            self.assertIn(part, text)

    def test_links_are_followed_only_if_asked(self):
        blob = self.folder / "blob"
        self.second.rename(blob)
        self.second.symlink_to(blob)
        refused = self.merge("model", "merged")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("--follow_links", refused.stderr)
        self.assertEqual(self.merge("model", "merged", "--follow_links").returncode, 0)


if __name__ == "__main__":
    unittest.main()

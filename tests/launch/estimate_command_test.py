#!/usr/bin/env python3
"""`accelerate estimate-memory` as a user runs it."""

import json
import unittest
from pathlib import Path

from config_program import ProgramTest

BERT = json.dumps({"model_type": "bert", "vocab_size": 28996})


class EstimateMemory(ProgramTest):
    def setUp(self):
        super().setUp()
        self.config = self.write("config.json", BERT)

    def estimate(self, *arguments):
        return self.run_program("estimate-memory", self.config, *arguments, environment={"PATH": "/nonexistent"})

    def estimate_json(self, *arguments):
        result = self.estimate("--json", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_the_table_of_types(self):
        result = self.estimate()
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("108.31 M parameters in 199 tensors; the largest layer is embeddings.word_embeddings\n", result.stdout)
        self.assertIn(
            "DTYPE     LARGEST LAYER  TOTAL SIZE      ADAM         SGD  8-BIT ADAM\n"
            "float32       84.95 MiB  413.17 MiB  1.61 GiB  826.34 MiB    1.01 GiB\n",
            result.stdout,
        )
        self.assertIn("int4          10.62 MiB   51.65 MiB         -           -           -\n", result.stdout)
        self.assertIn("No GPU was found here", result.stdout)

    def test_types_and_ranks_can_be_chosen(self):
        document = self.estimate_json("--dtypes", "bf16", "int8", "--ranks", "3,5")
        self.assertEqual([row["dtype"] for row in document["dtypes"]], ["bfloat16", "int8"])
        self.assertEqual(sorted({row["ranks"] for row in document["ranks"]}), [3, 5])
        self.assertEqual(len(document["ranks"]), 4 * 2)

    def test_json_is_exact(self):
        document = self.estimate_json()
        self.assertEqual(document["parameters"], 108310272)
        self.assertEqual(document["dtypes"][0]["training"]["adam"]["total"], 16 * 108310272)
        self.assertEqual(document["dtypes"][0]["reference"]["peak"], 16 * 108310272)
        self.assertIsNone(document["dtypes"][3]["training"])
        self.assertIsNone(document["gpus"])

    def test_the_class_of_the_model_is_named(self):
        self.assertEqual(self.estimate_json()["architecture"], "BertModel")
        self.write("config.json", json.dumps({"model_type": "bert", "architectures": ["BertForMaskedLM"]}))
        self.assertEqual(self.estimate_json()["architecture"], "BertForMaskedLM")
        self.assertIn("config.json (BertForMaskedLM)\n", self.estimate().stdout)

    def test_the_class_of_weights_is_the_one_of_the_file_beside_them(self):
        header = b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'
        weights = self.folder / "model.safetensors"
        weights.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
        for text, named in (
            (json.dumps({"architectures": ["Odd\u001b[2JModel"]}), "Odd\u001b[2JModel"),  # no known one, and not trusted
            ("no JSON", ""),
        ):
            self.write("config.json", text)
            result = self.run_program("estimate-memory", weights, "--json")
            self.assertEqual(json.loads(result.stdout)["architecture"], named)
            self.assertNotIn("\x1b", self.run_program("estimate-memory", weights).stdout)

    def test_all_strategies_are_in_this_build(self):
        text = self.estimate("--dtypes", "float32", "--gpu_memory", "24GiB").stdout
        self.assertRegex(text, r"(?m)^float32 +DDP ")
        self.assertRegex(text, r"(?m)^float32 +ZeRO-3 ")
        self.assertRegex(text, r"(?m)^DTYPE +LOADED +DDP +ZeRO-1 +ZeRO-2 +ZeRO-3$")
        self.assertNotIn("not part of this build", text)
        document = self.estimate_json("--dtypes", "float32")
        built = {row["strategy"]: row["in_this_build"] for row in document["ranks"]}
        self.assertEqual(built, {"DDP": True, "ZeRO-1": True, "ZeRO-2": True, "ZeRO-3": True})

    def test_activations_and_gpus(self):
        document = self.estimate_json("--batch", "8", "--sequence", "512", "--gpu_memory", "24GiB", "--gpus", "2")
        self.assertEqual(document["dtypes"][1]["activations"], 8 * 512 * 768 * (12 * 34 + 2))
        self.assertEqual(document["gpus"]["count"], 2)
        self.assertEqual(document["gpus"]["memory"], 24 << 30)
        self.assertIn({"dtype": "float32", "strategy": "DDP", "gpus": 1}, document["gpus"]["fits"])

    def test_gpus_of_nvidia_smi_are_used(self):
        tools = self.folder / "tools"
        tools.mkdir()
        smi = tools / "nvidia-smi"
        smi.write_text("#!/bin/sh\necho '81559 MiB'\n")
        smi.chmod(0o755)
        result = self.run_program("estimate-memory", self.config, environment={"PATH": f"{tools}:/bin:/usr/bin"})
        self.assertEqual(result.returncode, 0)
        has_gpu = any(path.name[6:].isdigit() for path in Path("/dev").glob("nvidia*"))
        # Without a device of the driver nobody is asked.
        told = "What fits on 1 GPU of 79.65 GiB (nvidia-smi)" if has_gpu else "No GPU was found here"
        self.assertIn(told, result.stdout)

    def test_errors_say_what_to_do(self):
        missing = self.run_program("estimate-memory", "org/nowhere")
        self.assertEqual(missing.returncode, 2)
        self.assertIn("error: there is no model org/nowhere\n", missing.stderr)
        half = self.estimate("--batch", "8")
        self.assertEqual(half.returncode, 2)
        self.assertIn("--batch and --sequence must be given together", half.stderr)
        self.assertEqual(self.estimate("--gpus", "2").returncode, 2)
        self.assertEqual(self.estimate("--gpu_memory", "much").returncode, 2)
        self.assertEqual(self.estimate("--ranks", "0").returncode, 2)
        broken = self.run_program("estimate-memory", self.write("w.safetensors", "short"))
        self.assertEqual(broken.returncode, 1)
        self.assertIn("w.safetensors", broken.stderr)

    def test_options_of_the_reference_are_named_as_without_effect(self):
        result = self.estimate("--library_name", "transformers", "--trust-remote-code")
        self.assertEqual(result.returncode, 0)
        self.assertIn("without effect", result.stderr)


if __name__ == "__main__":
    unittest.main()

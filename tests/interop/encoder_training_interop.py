#!/usr/bin/env python3
"""Fine-tuning with dropout from the same seed: Python's transformers and C++ draw the same random numbers.

usage: encoder_training_interop.py encoder_training_peer
"""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import safetensors.torch
import torch
import transformers

PEER = ""
STEPS = 5
SIZES = {
    **{"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4},
    **{"intermediate_size": 24, "max_position_embeddings": 20, "num_labels": 3, "initializer_range": 0.2},
}
CONFIGS = {
    "Bert": transformers.BertConfig(**SIZES),
    "Roberta": transformers.RobertaConfig(**SIZES),
    "DistilBert": transformers.DistilBertConfig(
        vocab_size=40, dim=16, n_layers=3, n_heads=4, hidden_dim=24, max_position_embeddings=20, num_labels=3
    ),
}
TASKS = ("ForSequenceClassification", "ForTokenClassification", "ForMaskedLM")


def inputs_of(task, pad, lengths):
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(3, 40, (len(lengths), max(lengths)), generator=generator)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    ids[mask == 0] = pad
    labels = torch.randint(0, 3, ids.shape, generator=generator)
    labels[mask == 0] = -100
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "labels": labels[:, 0].contiguous() if task == "ForSequenceClassification" else labels,
    }


def losses_of(model, inputs, seed):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(seed)
    losses = []
    for _ in range(STEPS):
        loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


class EncoderTrainingTest(unittest.TestCase):
    def test_losses_are_the_same(self):
        torch.set_num_threads(1)
        for kind, config in CONFIGS.items():
            for task in TASKS:
                # Without padding, with a little, and with so much that it is left out.
                for lengths in ([8, 8, 8, 8], [9, 9, 8, 9], [9, 3, 5, 2]):
                    with self.subTest(kind=kind, task=task, lengths=lengths):
                        self.compare(kind + task, config, inputs_of(task, config.pad_token_id, lengths))

    def compare(self, name, config, inputs):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            torch.manual_seed(1)
            model = getattr(transformers, name)(config)
            model.save_pretrained(folder / "model")
            safetensors.torch.save_file(inputs, folder / "inputs.safetensors")
            result = subprocess.run(
                [PEER, name, folder / "model", folder / "inputs.safetensors", "7"],
                capture_output=True,
                text=True,
                timeout=300,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        expected = losses_of(model, inputs, 7)
        actual = [float(line) for line in result.stdout.split()]
        self.assertEqual(len(actual), STEPS)
        for own, wanted in zip(actual, expected):
            self.assertAlmostEqual(own, wanted, delta=2e-5 * abs(wanted))


if __name__ == "__main__":
    PEER = sys.argv.pop(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    unittest.main()

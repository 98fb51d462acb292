#!/usr/bin/env python3
"""Tokenizers of checkpoints, collators and sentence embeddings against Python's transformers.

usage: text_interop.py text_peer
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import tokenizers
import torch
import transformers

PEER = ""
ROOT = Path(__file__).resolve().parents[2]
MINILM = ROOT / ".deps" / "minilm"
TEXTS = [
    "The weather is fine.",
    "Don't you think so, dear Mr. O'Neill?  [MASK] it is!",
    "",
    "Größere Äpfel kosten 3,50 € – naïve café 東京 🙂",
    "one two three four five six seven eight nine ten eleven twelve",
]
PAIRS = ["So it is.", "Yes", "only the second", "x", "y z"]
CORPUS = [*TEXTS, *PAIRS, "It is what it is and nothing more than that.", "bytes and words and pieces of words"] * 4


def call(*words):
    result = subprocess.run([PEER, *map(str, words)], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, f"{words}: {result.returncode}\n{result.stdout}{result.stderr}"


def trained(kind):
    """A small tokenizer of the library "tokenizers", made here."""
    if kind == "wordpiece":
        backend = tokenizers.BertWordPieceTokenizer(lowercase=True)
        backend.train_from_iterator(CORPUS, vocab_size=200)
    elif kind == "bytes":
        backend = tokenizers.ByteLevelBPETokenizer()
        backend.train_from_iterator(CORPUS, vocab_size=320, special_tokens=["<|endoftext|>"])
    else:
        backend = tokenizers.SentencePieceUnigramTokenizer()
        backend.train_from_iterator(CORPUS, vocab_size=150, unk_token="<unk>", special_tokens=["<pad>", "</s>", "<unk>"])
    return backend


class TextTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def ask(self, command, folder, *requests):
        request, answer = self.folder / "request.json", self.folder / "answer.json"
        common = {"texts": TEXTS, "pairs": None, "max_length": None, "multiple": 0}
        request.write_text(json.dumps([{**common, **one} for one in requests]))
        call(command, folder, request, answer)
        return json.loads(answer.read_text())

    def check_same(self, folder):
        """All that the two tokenizers say of a folder is the same."""
        python = transformers.AutoTokenizer.from_pretrained(folder)
        requests = [
            {"pairs": pairs, "max_length": max_length, "multiple": multiple}
            for pairs in (None, PAIRS)
            for max_length, multiple in ((None, 0), (8, 4))
        ]
        for request, given in zip(requests, self.ask("encode", folder, *requests)):
            limit, multiple = request["max_length"], request["multiple"]
            options = {"truncation": True, "max_length": limit, "pad_to_multiple_of": multiple} if limit else {}
            wanted = python(TEXTS, request["pairs"], padding=True, **options)
            for name in ("input_ids", "attention_mask", "token_type_ids"):
                self.assertEqual(given[name], wanted.get(name), (name, request))
            ids = wanted["input_ids"]
            self.assertEqual(given["decoded"], python.batch_decode(ids))
            self.assertEqual(given["skipped"], python.batch_decode(ids, skip_special_tokens=True))
        for name in ("pad_token_id", "eos_token_id", "mask_token_id", "padding_side"):
            self.assertEqual(given[name], getattr(python, name), name)
        self.assertEqual(given["all_special_ids"], sorted(set(python.all_special_ids)))
        self.assertEqual(given["size"], len(python))
        limit = python.model_max_length
        self.assertEqual(given["model_max_length"], None if limit > 1e20 else limit)

    def python_folders(self):
        """Folders as Python's save_pretrained() writes them."""
        make = transformers.PreTrainedTokenizerFast
        bert = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]"}
        end = "<|endoftext|>"
        yield "bert", make(tokenizer_object=trained("wordpiece")._tokenizer, **bert, model_max_length=64)
        yield "types", make(
            tokenizer_object=trained("wordpiece")._tokenizer, **bert,
            model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        )
        yield "clean", make(tokenizer_object=trained("wordpiece")._tokenizer, **bert, clean_up_tokenization_spaces=True)
        yield "gpt2", make(
            tokenizer_object=trained("bytes")._tokenizer, bos_token=end, eos_token=end, pad_token=end, padding_side="left"
        )
        yield "t5", make(
            tokenizer_object=trained("unigram")._tokenizer, eos_token="</s>", unk_token="<unk>", pad_token="<pad>",
            additional_special_tokens=["<extra_id_0>", "<extra_id_1>"],
        )

    def test_folders_of_python_read_the_same(self):
        for name, python in self.python_folders():
            with self.subTest(name):
                folder = self.folder / name
                python.save_pretrained(folder)
                self.check_same(folder)

    def test_what_is_saved_reads_the_same_in_python(self):
        for name, python in self.python_folders():
            with self.subTest(name):
                first, second = self.folder / name, self.folder / (name + "_saved")
                python.save_pretrained(first)
                call("save", first, second)
                self.check_same(second)
                texts = transformers.AutoTokenizer.from_pretrained(second)(TEXTS)["input_ids"]
                self.assertEqual(texts, transformers.AutoTokenizer.from_pretrained(first)(TEXTS)["input_ids"])

    def test_a_bare_vocabulary_reads_and_is_saved_alike(self):
        trained("wordpiece").save_model(str(self.folder))
        (self.folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
        self.check_same(self.folder)
        saved = self.folder / "saved"
        call("save", self.folder, saved)
        shutil.copy(self.folder / "config.json", saved)
        self.check_same(saved)

    def test_the_collator_pads_as_python_does(self):
        for name, python in self.python_folders():
            with self.subTest(name):
                folder = self.folder / name
                python.save_pretrained(folder)
                python = transformers.AutoTokenizer.from_pretrained(folder)
                collator = transformers.DataCollatorWithPadding(python, pad_to_multiple_of=4)
                encoded = [python(text, truncation=True, max_length=12) for text in TEXTS]
                wanted = collator([{**sample, "label": i} for i, sample in enumerate(encoded)])
                [given] = self.ask("collate", folder, {"max_length": 12, "multiple": 4})
                for key in ("input_ids", "attention_mask", "token_type_ids", "labels"):
                    self.assertEqual(given[key], wanted[key].tolist() if key in wanted else None, key)

    def test_sentence_embeddings_of_minilm_are_those_of_python(self):
        fetched = subprocess.run([ROOT / "scripts" / "fetch_minilm.sh"], timeout=300, capture_output=True, text=True)
        if fetched.returncode != 0:
            self.skipTest("the pretrained model cannot be fetched here: " + fetched.stderr)
        self.check_same(MINILM)
        python = transformers.AutoTokenizer.from_pretrained(MINILM)
        model = transformers.AutoModel.from_pretrained(MINILM).eval()
        with torch.no_grad():
            inputs = python(TEXTS, padding=True, return_tensors="pt")
            states, mask = model(**inputs).last_hidden_state, inputs["attention_mask"].unsqueeze(-1)
            wanted = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1))
        given = torch.tensor(self.ask("embed", MINILM, {})[0])
        torch.testing.assert_close(given, wanted, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    PEER = sys.argv.pop(1)
    unittest.main(verbosity=2)

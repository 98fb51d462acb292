#!/usr/bin/env python3
"""Checkpoints of transformer models between Python's transformers and C++, in both directions.

usage: transformers_interop.py transformers_peer
"""

import copy
import json
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
SMALL = {"vocab_size": 40, "pad_token_id": 0}
BERT = {
    **SMALL,
    **{"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24},
    **{"max_position_embeddings": 20},
}
GPT2 = {**SMALL, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 20, "bos_token_id": 1, "eos_token_id": 2}
LLAMA = {
    **SMALL,
    **{"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2},
    **{"intermediate_size": 24, "max_position_embeddings": 20, "bos_token_id": 1, "eos_token_id": 2},
}
T5 = {**SMALL, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
CONFIGS = {
    "Bert": transformers.BertConfig(**BERT),
    "Roberta": transformers.RobertaConfig(**{**BERT, "pad_token_id": 1, "type_vocab_size": 1}),
    "DistilBert": transformers.DistilBertConfig(
        **SMALL, dim=16, n_layers=2, n_heads=4, hidden_dim=24, max_position_embeddings=20
    ),
    "GPT2": transformers.GPT2Config(**GPT2),
    "Llama": transformers.LlamaConfig(**LLAMA, tie_word_embeddings=False),
    "T5": transformers.T5Config(**T5),
}
CLASSES = [
    *("BertModel", "BertForSequenceClassification", "BertForTokenClassification", "BertForMaskedLM"),
    *("RobertaModel", "RobertaForSequenceClassification", "RobertaForTokenClassification", "RobertaForMaskedLM"),
    *("DistilBertModel", "DistilBertForSequenceClassification", "DistilBertForTokenClassification"),
    *("DistilBertForMaskedLM", "GPT2Model", "GPT2LMHeadModel", "GPT2ForSequenceClassification"),
    *("GPT2ForTokenClassification", "LlamaForTokenClassification", "LlamaModel", "LlamaForCausalLM"),
    *("LlamaForSequenceClassification", "T5Model", "T5ForConditionalGeneration"),
    *("T5ForSequenceClassification", "T5ForTokenClassification"),
]


def call(*words):
    result = subprocess.run([PEER, *map(str, words)], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, f"{words}: {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout + result.stderr


def config_of(name):
    return next(config for beginning, config in CONFIGS.items() if name.startswith(beginning))


def new_model(name, dtype=torch.float32):
    """Every parameter has a value that its initialisation would not give it."""
    torch.manual_seed(1)
    model = getattr(transformers, name)(copy.deepcopy(config_of(name))).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.to(dtype)


def inputs_of(name):
    torch.manual_seed(2)
    ids = torch.randint(3, 40, (2, 8))
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    inputs = {"input_ids": ids.where(mask == 1, config_of(name).pad_token_id), "attention_mask": mask}
    if name == "T5ForSequenceClassification":
        for row, last in enumerate((7, 4)):
            inputs["input_ids"][row, last] = config_of(name).eos_token_id
    elif name.startswith("T5") and name != "T5ForTokenClassification":
        inputs["decoder_input_ids"] = torch.randint(3, 40, (2, 5))
    return inputs


def answer_of(model, name):
    with torch.no_grad():
        output = model(**inputs_of(name))
    return without_padding(output.logits if "logits" in output else output.last_hidden_state, name)


def without_padding(answer, name):
    """What a model says of padding is of no meaning; T5's answer is about the other text."""
    mask = inputs_of(name)["attention_mask"]
    return answer[mask == 1] if answer.shape[:2] == mask.shape else answer


class InteropTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def load(self, name, folder):
        """Python's model, without a word about missing or unexpected tensors."""
        model, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            self.assertFalse(info[kind], f"{name}: {kind}")
        return model.eval()

    def cpp_answer(self, name, folder):
        safetensors.torch.save_file(inputs_of(name), self.folder / "inputs.safetensors")
        said = call("answer", name, folder, self.folder / "inputs.safetensors", self.folder / "out.safetensors")
        self.assertEqual(said, "")
        answer = next(iter(safetensors.torch.load_file(self.folder / "out.safetensors").values()))
        return without_padding(answer, name)

    def assert_same_state(self, one, other):
        one, other = one.state_dict(), other.state_dict()
        self.assertEqual(sorted(one), sorted(other))
        for key, tensor in one.items():
            self.assertEqual(tensor.dtype, other[key].dtype, key)
            self.assertTrue(torch.equal(tensor, other[key]), key)

    def test_cpp_answers_as_python_does(self):
        for name in CLASSES:
            with self.subTest(name):
                model = new_model(name)
                model.save_pretrained(self.folder / name)
                expected = answer_of(model, name)
                difference = (self.cpp_answer(name, self.folder / name) - expected).abs().max().item()
                self.assertLess(difference, 1e-5 * max(1.0, expected.abs().max().item()))

    def test_python_loads_what_cpp_saved(self):
        for name in CLASSES:
            for size in ("50GB", "3KB"):
                with self.subTest(name=name, size=size):
                    model = new_model(name)
                    model.save_pretrained(self.folder / name)
                    call("resave", name, self.folder / name, self.folder / "again", size)
                    loaded = self.load(name, self.folder / "again")
                    self.assert_same_state(model, loaded)
                    self.assertTrue(torch.equal(answer_of(model, name), answer_of(loaded, name)))
                    self.assertEqual(type(self.auto_load(model, self.folder / "again")), type(model))

    def auto_load(self, model, folder):
        """By config.json alone, as pipelines do it."""
        architecture = json.loads((folder / "config.json").read_text())["architectures"][0]
        return getattr(transformers, architecture).from_pretrained(folder)

    def test_files_are_the_same_after_a_round_trip(self):
        for name in CLASSES:
            with self.subTest(name):
                first, second = self.folder / name, self.folder / f"{name}-again"
                new_model(name).save_pretrained(first)
                call("resave", name, first, second, "50GB")
                for file in first.iterdir():
                    self.assertEqual(file.read_bytes(), (second / file.name).read_bytes(), file.name)

    def test_labels_are_sorted_by_their_number(self):
        config = transformers.BertConfig(**BERT, num_labels=12)
        transformers.BertForSequenceClassification(config).save_pretrained(self.folder / "first")
        call("resave", "BertForSequenceClassification", self.folder / "first", self.folder / "again", "50GB")
        first, again = (self.folder / name / "config.json" for name in ("first", "again"))
        self.assertEqual(first.read_text(), again.read_text())

    def test_shards_of_python_are_read(self):
        for name in ("BertForMaskedLM", "T5ForConditionalGeneration"):
            model = new_model(name)
            model.save_pretrained(self.folder / name, max_shard_size="3KB")
            self.assertFalse((self.folder / name / "model.safetensors").exists())
            call("resave", name, self.folder / name, self.folder / f"{name}-again", "50GB")
            self.assert_same_state(model, self.load(name, self.folder / f"{name}-again"))

    def test_archives_of_torch_are_read(self):
        for name in CLASSES:
            with self.subTest(name):
                model = new_model(name)
                model.save_pretrained(self.folder / name)
                (self.folder / name / "model.safetensors").unlink()
                torch.save(model.state_dict(), self.folder / name / "pytorch_model.bin")
                call("resave", name, self.folder / name, self.folder / f"{name}-again", "50GB")
                self.assert_same_state(model, self.load(name, self.folder / f"{name}-again"))

    def test_the_saved_type_is_kept(self):
        for dtype in (torch.bfloat16, torch.float16):
            for name in ("BertForMaskedLM", "LlamaForCausalLM", "GPT2LMHeadModel"):
                model = new_model(name, dtype)
                model.save_pretrained(self.folder / name)
                call("resave", name, self.folder / name, self.folder / "again", "50GB")
                self.assert_same_state(model, self.load(name, self.folder / "again"))

    def test_python_loads_a_model_that_cpp_made(self):
        for name in CLASSES:
            with self.subTest(name):
                config = config_of(name)
                config.save_pretrained(self.folder / name)
                call("create", name, self.folder / name / "config.json", self.folder / f"{name}-new")
                model = self.load(name, self.folder / f"{name}-new")
                expected = answer_of(model, name)
                difference = (self.cpp_answer(name, self.folder / f"{name}-new") - expected).abs().max().item()
                self.assertLess(difference, 1e-5 * max(1.0, expected.abs().max().item()))

    def test_tokens_that_cpp_adds_are_those_of_python(self):
        for name in CLASSES:
            with self.subTest(name):
                model = new_model(name)
                model.save_pretrained(self.folder / name)
                call("resize", name, self.folder / name, self.folder / "more", 43, 8)
                loaded = self.load(name, self.folder / "more")
                old = model.get_input_embeddings().weight.detach().clone()
                before = answer_of(model, name)
                model.resize_token_embeddings(43, pad_to_multiple_of=8)
                for key, tensor in loaded.state_dict().items():
                    expected = model.state_dict()[key]
                    self.assertEqual(tensor.shape, expected.shape, key)
                    if tensor.shape[0] == 48:  # the rows that were there, and the mean of them
                        self.assertTrue(torch.equal(tensor[:40], expected[:40]), key)
                        self.assertLess((tensor[40:] - expected[40:]).abs().max().item(), 1e-3, key)
                    else:
                        self.assertTrue(torch.equal(tensor, expected), key)
                self.assertTrue(torch.equal(loaded.get_input_embeddings().weight[:40], old))
                self.assertEqual(loaded.config.vocab_size, 48)
                after = answer_of(loaded, name)
                after = after[..., :40] if after.shape[-1] == 48 else after
                self.assertLess((after - before).abs().max().item(), 1e-5 * max(1.0, before.abs().max().item()))

    def test_tokens_that_python_adds_are_read_by_cpp(self):
        heads = ("BertForMaskedLM", "DistilBertForMaskedLM", "GPT2LMHeadModel", "LlamaForCausalLM")
        for name in (*heads, "RobertaForTokenClassification", "T5ForConditionalGeneration"):
            with self.subTest(name):
                model = new_model(name)
                model.resize_token_embeddings(43)
                model.save_pretrained(self.folder / name)
                expected = answer_of(model, name)
                difference = (self.cpp_answer(name, self.folder / name) - expected).abs().max().item()
                self.assertLess(difference, 1e-5 * max(1.0, expected.abs().max().item()))

    def test_common_names_of_settings_mean_what_they_mean_in_python(self):
        common = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
        for name in ("GPT2Model", "DistilBertModel", "T5Model", "BertModel"):
            with self.subTest(name):
                folder = self.folder / name
                config_of(name).save_pretrained(folder)
                settings = json.loads((folder / "config.json").read_text()) | common
                settings["num_decoder_layers"] = 1
                (folder / "config.json").write_text(json.dumps(settings))
                call("create", name, folder / "config.json", self.folder / f"{name}-new")
                config = self.load(name, self.folder / f"{name}-new").config
                for key, value in common.items():
                    self.assertEqual(getattr(config, key), value, key)

    def test_settings_of_generation_go_from_python_to_cpp_and_back(self):
        model = new_model("GPT2LMHeadModel")
        model.generation_config.update(do_sample=True, top_k=7, temperature=0.5, max_new_tokens=11)
        model.save_pretrained(self.folder / "first")
        call("resave", "GPT2LMHeadModel", self.folder / "first", self.folder / "again", "50GB")
        again = transformers.GenerationConfig.from_pretrained(self.folder / "again")
        self.assertEqual((again.do_sample, again.top_k, again.temperature, again.max_new_tokens), (True, 7, 0.5, 11))


if __name__ == "__main__":
    PEER = sys.argv.pop(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    unittest.main()

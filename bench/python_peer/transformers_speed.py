"""The same work as bench_transformers with Python's transformers and accelerate.

usage: transformers_speed.py load|finetune|generate --folder FOLDER [--threads N] [--steps N] [--batch N] [--positions N]
                             [--new-tokens N]
       transformers_speed.py make --folder FOLDER [--from FOLDER]    a small GPT-2, or a classifier on that model
"""

import argparse
import json
import resource
import statistics
import time

import torch


def token_ids(rows, positions, vocabulary):
    return ((torch.arange(rows * positions) * 7919 + 13) % vocabulary).view(rows, positions)


def load(options):
    from transformers import AutoModel

    model = AutoModel.from_pretrained(options.folder)
    total = sum(parameter.detach().abs().sum(dtype=torch.float64).item() for parameter in model.parameters())
    return {"sum": total, "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def finetune(options):
    from accelerate import Accelerator
    from transformers import AutoModelForSequenceClassification

    accelerator = Accelerator(cpu=True)
    model = AutoModelForSequenceClassification.from_pretrained(options.folder)
    model.eval()
    batch = {
        "input_ids": token_ids(options.batch, options.positions, model.config.vocab_size),
        "attention_mask": torch.ones(options.batch, options.positions, dtype=torch.long),
        "labels": torch.arange(options.batch) % model.config.num_labels,
    }
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-5))
    result = {"loss": model(**batch).loss.item()}
    model.train()
    times = []
    for step in range(options.steps + 3):
        start = time.perf_counter()
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()
        if step >= 3:
            times.append(1e3 * (time.perf_counter() - start))
    result["step_ms"] = statistics.median(times)
    return result


def generate(options):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(options.folder)
    prompt = token_ids(1, 16, model.config.vocab_size)
    count = options.new_tokens
    times = []
    for run in range(options.steps + 1):
        start = time.perf_counter()
        tokens = model.generate(
            input_ids=prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=False,
            pad_token_id=0,
        )
        if run >= 1:
            times.append(1e3 * (time.perf_counter() - start))
    return {"tokens": tokens.flatten().tolist(), "generate_ms": statistics.median(times)}


def make(options):
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, GPT2Config

    torch.manual_seed(1)
    if options.source:
        model = AutoModelForSequenceClassification.from_pretrained(options.source, num_labels=6)
    else:
        # Wider values than a new model has: scores far enough apart that rounding chooses no token.
        config = GPT2Config(n_layer=6, n_head=6, n_embd=384, initializer_range=0.2)
        model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(options.folder)
    return {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("load", "finetune", "generate", "make"))
    parser.add_argument("--folder", required=True)
    parser.add_argument("--from", dest="source")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--positions", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=128)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(json.dumps(globals()[options.part](options)))


if __name__ == "__main__":
    main()

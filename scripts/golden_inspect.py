#!/usr/bin/env python3
"""What is inside two fixtures, from transformers, hooks and plain numpy: the judge of `softdict-inspect`.

Needs:  pip install torch transformers safetensors numpy   (CPU, no network)

    scripts/golden_inspect.py [--golden tests/golden]

Reads the folders that scripts/golden.py wrote and adds `inspect.safetensors` to two of them. Tensors (L layers, H heads,
T tokens, V vocabulary):

- `block` (T,): five tokens, repeated; `scores` (L, H, 7) on it: previous, duplicate, induction, first, current, entropy,
  distance, by their definitions in numpy.
- `queries` (2,), `distance` (1,), `keys` (L, H, 2, V): score of every key token that far before each query token, from
  single embeddings behind the layer's norm, positions left out but for rotation.
- `promoted` (L, H, 2, V): rise of every logit when the head attends to the token of `queries` alone, the final norm's
  weight folded in and its scale left out.
- `clean`, `corrupt` (T,), `answer`, `against` (1,): `residual` (L, T), `heads` (L, H, T), `ffn` (L, T): share of the logit
  difference at the last position that one clean activation brings back in the corrupt pass, by forward hooks.
- `shares` (1 + L·(H + 2) + 1,): the logit of `answer` after `clean`, from the embedding, then for each layer its heads, its
  output bias (0 where it has none) and its FFN, and last the final norm's bias.
"""

import argparse
import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM


class Model:
    """One architecture's parts by common names."""

    def __init__(self, folder):
        self.model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval().float()
        config = self.config = self.model.config
        self.gpt2 = config.model_type == "gpt2"
        base = self.model.transformer if self.gpt2 else self.model.model
        self.blocks = base.h if self.gpt2 else base.layers
        self.final = base.ln_f if self.gpt2 else base.norm
        self.table = (base.wte if self.gpt2 else base.embed_tokens).weight.detach()
        self.head = self.model.lm_head.weight.detach()
        self.layers, self.heads = config.num_hidden_layers, config.num_attention_heads
        self.kv_heads = getattr(config, "num_key_value_heads", None) or self.heads
        self.width = config.hidden_size
        self.size = self.width // self.heads
        self.eps = config.layer_norm_epsilon if self.gpt2 else config.rms_norm_eps

    def out(self, layer):
        return self.blocks[layer].attn.c_proj if self.gpt2 else self.blocks[layer].self_attn.o_proj

    def ffn(self, layer):
        return self.blocks[layer].mlp

    def out_weight(self, layer):
        weight = self.out(layer).weight.detach()
        return weight.T if self.gpt2 else weight  # (C, H·D)

    def qkv(self, layer, head):
        """Weights (D, C) and biases (D,) of a head's queries, keys and values."""
        size, group = self.size, self.heads // self.kv_heads
        if self.gpt2:
            attention = self.blocks[layer].attn.c_attn
            weight, bias = attention.weight.detach().T, attention.bias.detach()
            starts = [part * self.width + head * size for part in range(3)]
            return [(weight[start:start + size], bias[start:start + size]) for start in starts]
        attention = self.blocks[layer].self_attn
        parts = [(attention.q_proj, head), (attention.k_proj, head // group), (attention.v_proj, head // group)]
        return [(part.weight.detach()[at * size:(at + 1) * size], torch.zeros(size)) for part, at in parts]

    def norm1(self, layer):
        return self.blocks[layer].ln_1 if self.gpt2 else self.blocks[layer].input_layernorm

    def turned(self, rows, position):
        if self.gpt2:
            return rows
        base = self.config.rope_parameters["rope_theta"]
        half = self.size // 2
        angle = position * base ** (-2.0 * numpy.arange(half) / self.size)
        cos, sin = torch.tensor(numpy.cos(angle)), torch.tensor(numpy.sin(angle))
        low, high = rows[:, :half].double(), rows[:, half:].double()
        return torch.cat([low * cos - high * sin, high * cos + low * sin], 1).float()

    def run(self, ids, changes=(), seen=None):
        """Logits; `changes` are (module, is input, function), `seen` keeps what the hooks saw."""
        handles = []
        for module, is_input, change in changes:
            if is_input:
                handles.append(module.register_forward_pre_hook(lambda _, args, change=change: (change(args[0]), *args[1:])))
            else:
                handles.append(module.register_forward_hook(lambda _, __, out, change=change: change(out)))
        with torch.no_grad():
            result = self.model(torch.tensor([ids]), output_attentions=True)
        for handle in handles:
            handle.remove()
        return result


def scores(pattern):
    """The seven scores of a T×T pattern of n tokens, repeated."""
    count = len(pattern)
    n, rows = count // 2, range(1, count)
    keys = numpy.arange(count)

    def entropy(row):
        some = row[row > 0]
        return -(some * numpy.log(some)).sum()

    return [
        numpy.mean([pattern[i, i - 1] for i in rows]),
        numpy.mean([pattern[i, i - n] for i in range(n, count)]),
        numpy.mean([pattern[i, i - n + 1] for i in range(n, count)]),
        numpy.mean([pattern[i, 0] for i in rows]),
        numpy.mean([pattern[i, i] for i in range(count)]),
        numpy.mean([entropy(pattern[i]) / numpy.log(i + 1) for i in rows]),
        numpy.mean([(pattern[i] * numpy.abs(i - keys)).sum() for i in rows]),
    ]


def circuits(model, queries, distance):
    keys = torch.zeros(model.layers, model.heads, len(queries), len(model.table))
    promoted = torch.zeros_like(keys)
    with torch.no_grad():
        for layer in range(model.layers):
            normed = model.norm1(layer)(model.table)  # (V, C)
            for head in range(model.heads):
                (wq, bq), (wk, bk), (wv, bv) = model.qkv(layer, head)
                q = model.turned(normed[queries] @ wq.T + bq, distance)
                k = normed @ wk.T + bk
                keys[layer, head] = q @ k.T / model.size ** 0.5
                write = (normed[queries] @ wv.T + bv) @ model.out_weight(layer)[:, head * model.size:(head + 1) * model.size].T
                if model.gpt2:
                    write = write - write.mean(1, keepdim=True)
                promoted[layer, head] = (write * model.final.weight) @ model.head.T
    return keys, promoted


def record(model, ids):
    """Inputs of blocks and output projections, and outputs of FFNs, by layer."""
    kept = {"block": {}, "gathered": {}, "ffn": {}}
    changes = []

    def keep(kind, layer):
        def change(tensor):
            kept[kind][layer] = tensor.detach().clone()
            return tensor
        return change

    for layer in range(model.layers):
        changes.append((model.blocks[layer], True, keep("block", layer)))
        changes.append((model.out(layer), True, keep("gathered", layer)))
        changes.append((model.ffn(layer), False, keep("ffn", layer)))
    result = model.run(ids, changes)
    return kept, result.logits[0, -1].double()


def patched(model, clean, corrupt, answer, against):
    kept, before = record(model, clean)
    difference = lambda logits: (logits[answer] - logits[against]).item()
    first = difference(before)
    last = difference(model.run(corrupt).logits[0, -1].double())

    def share(module, is_input, kind, layer, position, columns):
        def change(tensor):
            tensor = tensor.clone()
            tensor[0, position, columns] = kept[kind][layer][0, position, columns]
            return tensor
        found = difference(model.run(corrupt, [(module, is_input, change)]).logits[0, -1].double())
        return (found - last) / (first - last)

    all_columns, size, time = slice(None), model.size, len(clean)
    residual, ffn = torch.zeros(model.layers, time), torch.zeros(model.layers, time)
    heads = torch.zeros(model.layers, model.heads, time)
    for layer in range(model.layers):
        for position in range(time):
            residual[layer, position] = share(model.blocks[layer], True, "block", layer, position, all_columns)
            ffn[layer, position] = share(model.ffn(layer), False, "ffn", layer, position, all_columns)
            for head in range(model.heads):
                columns = slice(head * size, (head + 1) * size)
                heads[layer, head, position] = share(model.out(layer), True, "gathered", layer, position, columns)
    return residual, heads, ffn


def shares(model, ids, token):
    kept, logits = record(model, ids)
    direction = (model.head[token] * model.final.weight.detach()).double()
    writes = [kept["block"][0][0, -1].double()]
    for layer in range(model.layers):
        weight, gathered = model.out_weight(layer).double(), kept["gathered"][layer][0, -1].double()
        for head in range(model.heads):
            columns = slice(head * model.size, (head + 1) * model.size)
            writes.append(weight[:, columns] @ gathered[columns])
        bias = model.out(layer).bias
        writes.append(torch.zeros(model.width).double() if bias is None else bias.detach().double())
        writes.append(kept["ffn"][layer][0, -1].double())
    stream = sum(writes)
    centred = (lambda x: x - x.mean()) if model.gpt2 else (lambda x: x)
    scale = 1 / torch.sqrt((centred(stream) ** 2).mean() + model.eps)
    found = [(centred(write) * scale) @ direction for write in writes]
    found.append((model.final.bias.detach().double() @ model.head[token].double()) if model.gpt2 else torch.tensor(0.0).double())
    found = torch.stack(found)
    assert abs(found.sum() - logits[token]) < 1e-4, (found.sum(), logits[token])
    return found.float()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--golden", default="tests/golden")
    golden = Path(parser.parse_args().golden)
    for name in ["gpt2", "llama_gqa_untied"]:
        model = Model(golden / name)
        block = [3, 14, 1, 22, 9] * 2
        patterns = torch.stack(model.run(block).attentions)[:, 0].double().numpy()
        found = torch.tensor([[scores(head) for head in layer] for layer in patterns])
        queries, distance = [4, 17], 3
        keys, promoted = circuits(model, queries, distance)
        clean = load_file(golden / name / "expected.safetensors")["token_ids"][0].tolist()
        corrupt = list(clean)
        corrupt[4] = (clean[4] + 5) % len(model.table)
        answer = int(model.run(clean).logits[0, -1].argmax())
        against = int(model.run(corrupt).logits[0, -1].argsort()[-2])
        residual, heads, ffn = patched(model, clean, corrupt, answer, against)
        save_file({
            "block": torch.tensor(block), "scores": found.float(), "queries": torch.tensor(queries),
            "distance": torch.tensor([distance]), "keys": keys, "promoted": promoted,
            "clean": torch.tensor(clean), "corrupt": torch.tensor(corrupt),
            "answer": torch.tensor([answer]), "against": torch.tensor([against]),
            "residual": residual, "heads": heads, "ffn": ffn, "shares": shares(model, clean, answer),
        }, golden / name / "inspect.safetensors")
        print(name, "written")


if __name__ == "__main__":
    main()

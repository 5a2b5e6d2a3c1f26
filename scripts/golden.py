#!/usr/bin/env python3
"""Reference values from PyTorch and transformers: the judge that is not ourselves.

Needs:  pip install torch transformers safetensors numpy   (CPU, no network, no GPU)
Only this script needs Python. Its results are committed, so building and testing softdict does not.

    scripts/golden.py make [--out tests/golden]
        Writes the fixtures and tests/golden/SOURCE.md, which describes every file and tensor.
        Each fixture has its own seed (FIXTURES and the constants below), so that adding one leaves
        the others alone. Another machine may differ in the last bit of a float, nothing more.

    scripts/golden.py check [--model-only] FOLDER...
        Opens folders written by softdict the way a user of transformers would, and fails on any
        warning, on any missing or unexpected weight, and when a logit differs by more than 1e-4
        from `expected.safetensors` in that folder (`token_ids` (B, T), `logits` (B, T, V), and, if
        present, `attention` (L, B, H, T, T) and `text`, the UTF-8 bytes that must encode to the
        first row of `token_ids` and decode back). `--model-only` skips the tokenizer.
        One line per folder; exit code 1 when one fails.

Letters in shapes: B batch, T time, C width, H heads, G key/value heads, D head size, V vocabulary,
L layers.
"""

import argparse
import hashlib
import json
import logging
import os
import platform
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # a fixture must come from this file alone

import numpy
import safetensors
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
)

BATCH, TIME = 2, 11
MAX_LOGIT_DIFFERENCE = 1e-4
CURVE_SEED, OPS_SEED = 900, 901
CURVE_STEPS, CURVE_BATCH, CURVE_CONTEXT = 30, 4, 8


# ---------------------------------------------------------------------------------------------
# Model fixtures
# ---------------------------------------------------------------------------------------------


def rope(base, fraction=None):
    """The `rope_parameters` of a config; transformers writes the fraction for gpt_neox only."""
    parameters = {"rope_type": "default", "rope_theta": base}
    return parameters if fraction is None else {**parameters, "partial_rotary_factor": fraction}


def neox(heads, width, inner, vocabulary, fraction, **other):
    settings = dict(
        num_attention_heads=heads,
        hidden_size=width,
        intermediate_size=inner,
        vocab_size=vocabulary,
        num_hidden_layers=2,
        max_position_embeddings=32,
        layer_norm_eps=3e-4,
        use_parallel_residual=False,
        bos_token_id=None,
        eos_token_id=None,
        rope_parameters=rope(500.0, fraction),
    )
    return GPTNeoXConfig(**{**settings, **other})


def llama(heads, kv_heads, width, inner, vocabulary, **other):
    settings = dict(
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        hidden_size=width,
        intermediate_size=inner,
        vocab_size=vocabulary,
        num_hidden_layers=2,
        max_position_embeddings=32,
        rms_norm_eps=3e-4,
        bos_token_id=None,
        eos_token_id=None,
        rope_parameters=rope(500.0),
    )
    return LlamaConfig(**{**settings, **other})


def gpt2():
    # dropout stays at transformers' default 0.1: a reader that forgets to switch it off is caught
    return GPT2Config(
        n_head=4,
        n_embd=20,  # head size 5: odd, which only rotation forbids
        n_layer=2,
        n_positions=16,
        vocab_size=31,
        layer_norm_epsilon=3e-4,
        bos_token_id=None,
        eos_token_id=None,
    )


# name: (seed, config, what it is for, options)
FIXTURES = {
    "gpt_neox_untied": (
        101,
        lambda: neox(3, 24, 56, 31, 0.5),
        "sequential residual, exact GELU, half of each head rotated",
        {"gradients", "old_config"},
    ),
    "gpt_neox_tied": (
        102,
        lambda: neox(2, 24, 64, 29, 1.0, tie_word_embeddings=True),
        "whole heads rotated; no `lm_head.weight` in the file",
        {"gradients"},
    ),
    "gpt_neox_parallel": (
        103,
        lambda: neox(2, 32, 40, 29, 0.25, use_parallel_residual=True),
        "parallel residual and a quarter rotated, as Pythia",
        set(),
    ),
    "gpt_neox_tanh": (
        104,
        lambda: neox(4, 24, 40, 29, 1 / 3, hidden_act="gelu_pytorch_tanh"),
        "tanh GELU; fraction 1/3 of head size 6 is 2",
        set(),
    ),
    "llama_gqa_untied": (
        201,
        lambda: llama(4, 2, 24, 40, 37, bos_token_id=1, eos_token_id=2),  # the usual ids
        "two query heads share a key/value head",
        {"gradients", "old_config"},
    ),
    "llama_tied": (
        202,
        lambda: llama(3, 3, 24, 40, 29, tie_word_embeddings=True),
        "one key/value head per query head; no `lm_head.weight` in the file",
        set(),
    ),
    "gpt2": (
        301,
        gpt2,
        "tied, learned positions, `gelu_new`, `n_inner: null` is 4C, weights stored (in, out)",
        {"gradients"},
    ),
}

# name: (weights copied from, dtype)
HALF_FIXTURES = {
    "llama_tied_f16": ("llama_tied", torch.float16),
    "gpt_neox_untied_bf16": ("gpt_neox_untied", torch.bfloat16),
}


def randomize(model, generator, spread=0.3):
    """Draws every parameter, gains and biases included: a skipped one must show in the logits."""
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator) * spread
            is_gain = parameter.dim() == 1 and name.endswith(".weight")
            parameter.copy_(1.0 + noise if is_gain else noise)


def open_model(folder, **options):
    """Opens a folder in f32 with the attention implementation that can return its weights."""
    model = AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, **options
    )
    return model.eval()


def scalar(value):
    """Every scalar is stored with shape (1,), so that readers need no rank-0 case."""
    return torch.as_tensor(value, dtype=torch.float32).reshape(1)


def next_token_loss(logits, token_ids):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), token_ids[:, 1:].flatten())


def parameters_by_file_name(model, folder):
    """The parameters under the names that `model.safetensors` gives them.

    They differ for gpt_neox, whose untied head is `lm_head` in memory and `embed_out` on disk.
    """
    with safetensors.safe_open(folder / "model.safetensors", "pt") as file:
        names = set(file.keys())
    parameters = {
        name if name in names else name.replace("lm_head.", "embed_out."): parameter
        for name, parameter in model.named_parameters()
    }
    if set(parameters) != names:
        raise SystemExit(f"{folder}: the file and the model differ in {names ^ set(parameters)}")
    return parameters


def expectation(folder, seed, gradients):
    """What softdict must reproduce, from the folder as it lies on disk."""
    model = open_model(folder)
    generator = torch.Generator().manual_seed(seed + 1000)
    token_ids = torch.randint(model.config.vocab_size, (BATCH, TIME), generator=generator)
    output = model(token_ids, use_cache=False, output_attentions=True)
    loss = next_token_loss(output.logits, token_ids)
    tensors = {
        "token_ids": token_ids,
        "logits": output.logits,
        "attention": torch.stack(output.attentions),
        "loss": scalar(loss.detach()),
    }
    if gradients:
        loss.backward()
        for name, parameter in parameters_by_file_name(model, folder).items():
            tensors[f"gradient.{name}"] = parameter.grad
    return tensors


def write_tensors(path, tensors):
    # a copy each: the format refuses tensors that share memory
    ordered = {
        name: tensors[name].detach().clone(memory_format=torch.contiguous_format)
        for name in sorted(tensors)
    }
    save_file(ordered, path, metadata={"format": "pt"})
    path.chmod(0o644)


def write_model(model, folder):
    folder.mkdir(parents=True)
    model.save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)


def old_spelling(config):
    """The same config in the keys of transformers 4, which most published folders carry."""
    old = dict(config)
    parameters = old.pop("rope_parameters")
    old["torch_dtype"] = old.pop("dtype")
    old["transformers_version"] = "4.30.2"
    old["rope_scaling"] = None
    old.pop("pad_token_id")
    old.pop("is_decoder", None)
    if config["model_type"] == "gpt_neox":
        old["rotary_emb_base"] = int(parameters["rope_theta"])  # an integer, as in Pythia
        old["rotary_pct"] = parameters["partial_rotary_factor"]
    else:
        old["rope_theta"] = parameters["rope_theta"]
        for key in ("head_dim", "mlp_bias", "attention_bias", "attention_dropout"):
            del old[key]
    return dict(sorted(old.items()))


def write_old_config(folder):
    old = old_spelling(json.loads((folder / "config.json").read_text()))
    path = folder / "config.old.json"
    path.write_text(json.dumps(old, indent=2) + "\n")
    with tempfile.TemporaryDirectory() as other:
        shutil.copy(path, Path(other) / "config.json")
        shutil.copy(folder / "model.safetensors", other)
        expected = load_file(folder / "expected.safetensors")
        with torch.no_grad():
            logits = open_model(other)(expected["token_ids"], use_cache=False).logits
    if not torch.equal(logits, expected["logits"]):
        raise SystemExit(f"{path}: transformers reads other logits from the old spelling")


def make_models(out):
    for name, (seed, config, _, options) in FIXTURES.items():
        model = AutoModelForCausalLM.from_config(config())
        randomize(model, torch.Generator().manual_seed(seed))
        write_model(model, out / name)
        tensors = expectation(out / name, seed, "gradients" in options)
        write_tensors(out / name / "expected.safetensors", tensors)
        if "old_config" in options:
            write_old_config(out / name)
    for name, (source, dtype) in HALF_FIXTURES.items():
        write_model(open_model(out / source).to(dtype), out / name)
        # open_model widens the rounded weights to f32, as softdict does
        tensors = expectation(out / name, FIXTURES[source][0], gradients=False)
        write_tensors(out / name / "expected.safetensors", tensors)


# ---------------------------------------------------------------------------------------------
# A training run of softdict's default block
# ---------------------------------------------------------------------------------------------


def curve_batches(generator):
    """Walks along one cycle through the vocabulary, with 15 % random jumps: soon learned."""
    vocabulary = 13
    cycle = torch.randperm(vocabulary, generator=generator)
    successor = torch.empty_like(cycle)
    successor[cycle] = cycle.roll(-1)
    shape = (CURVE_STEPS, CURVE_BATCH)
    tokens = [torch.randint(vocabulary, shape, generator=generator)]
    for _ in range(CURVE_CONTEXT):
        jump = torch.rand(shape, generator=generator) < 0.15
        random = torch.randint(vocabulary, shape, generator=generator)
        tokens.append(torch.where(jump, random, successor[tokens[-1]]))
    tokens = torch.stack(tokens, dim=-1)  # (steps, B, T + 1)
    prompt = [torch.tensor(0)]
    for _ in range(4):
        prompt.append(successor[prompt[-1]])
    return tokens[..., :-1], tokens[..., 1:], torch.stack(prompt)


def greedy(model, prompt, count):
    """The most likely continuation, and by how much each choice won."""
    ids, margins = prompt.tolist(), []
    with torch.no_grad():
        for _ in range(count):
            logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
            best = logits.topk(2)
            ids.append(best.indices[0].item())
            margins.append(best.values[0] - best.values[1])
    return torch.tensor(ids[len(prompt) :]), torch.stack(margins)


def make_curve(out):
    generator = torch.Generator().manual_seed(CURVE_SEED)
    config = neox(2, 16, 64, 13, 1.0, layer_norm_eps=1e-5, rope_parameters=rope(10000.0, 1.0))
    model = AutoModelForCausalLM.from_config(config)
    randomize(model, generator, spread=0.2)
    write_model(model, out / "curve")
    model = open_model(out / "curve").train()  # all dropout rates are zero
    inputs, targets, prompt = curve_batches(generator)

    parameters = parameters_by_file_name(model, out / "curve")
    groups = [
        {"params": [p for p in parameters.values() if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters.values() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), eps=1e-8, foreach=False)
    losses, norms = [], []
    for step in range(CURVE_STEPS):
        logits = model(inputs[step], use_cache=False).logits
        loss = F.cross_entropy(logits.flatten(0, 1), targets[step].flatten())
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0))
        optimizer.step()
        losses.append(loss.detach())
    greedy_ids, greedy_margins = greedy(model.eval(), prompt, 20)
    write_tensors(
        out / "training_curve.safetensors",
        {
            "inputs": inputs,
            "targets": targets,
            "losses": torch.stack(losses),
            "grad_norms": torch.stack(norms),
            "greedy_prompt": prompt,
            "greedy_ids": greedy_ids,
            "greedy_margins": greedy_margins,
            **{f"final.{name}": parameter for name, parameter in parameters.items()},
        },
    )


# ---------------------------------------------------------------------------------------------
# Single operations, computed in f64
# ---------------------------------------------------------------------------------------------


class Operations:
    """Collects `<op>.<input>`, `.output`, `.upstream` and `.gradient.<input>` as f32."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.tensors = {}

    def normal(self, *shape, mean=0.0, spread=1.0):
        return mean + spread * torch.randn(shape, generator=self.generator)

    def integers(self, limit, *shape):
        return torch.randint(limit, shape, generator=self.generator)

    def constant(self, name, value):
        """Stores a setting and returns the value that its f32 form holds."""
        self.tensors[name] = scalar(value)
        return self.tensors[name].double().item()

    def add(self, op, function, inputs, fixed=None):
        """Runs `function` on f64 copies; `fixed` inputs (ids) get no gradient."""
        leaves = {name: x.double().requires_grad_() for name, x in inputs.items()}
        output = function(**leaves, **(fixed or {}))
        upstream = self.normal(*output.shape)
        output.backward(upstream.double())
        values = {**inputs, **(fixed or {}), "output": output, "upstream": upstream}
        values |= {f"gradient.{name}": leaf.grad for name, leaf in leaves.items()}
        for name, x in values.items():
            x = x.detach()
            x = x.reshape(1) if x.dim() == 0 else x
            self.tensors[f"{op}.{name}"] = x.float() if x.is_floating_point() else x


def rotate(input, positions, width, base):
    """Half-split rotation: of the first `width` entries of a head, i turns with i + width/2."""
    frequencies = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = positions.double()[:, None] * frequencies  # (T, width/2)
    first, second, rest = input.split([width // 2, width // 2, input.shape[-1] - width], dim=-1)
    return torch.cat(
        [
            first * angles.cos() - second * angles.sin(),
            second * angles.cos() + first * angles.sin(),
            rest,
        ],
        dim=-1,
    )


def attention_pattern(query, key, causal):
    """softmax(QKᵀ/√D); query head h reads key/value head h·G/H (integer division)."""
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)  # (B, H, T, D)
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5  # (B, H, T, T)
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    return scores.softmax(dim=-1)


def attention(query, key, value, causal):
    pattern = attention_pattern(query, key, causal)
    return pattern @ value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)


def make_ops(out):
    ops = Operations(OPS_SEED)

    eps = ops.constant("layer_norm.eps", 3e-4)
    ops.add(
        "layer_norm",
        lambda input, weight, bias: F.layer_norm(input, (13,), weight, bias, eps),
        {
            "input": ops.normal(3, 5, 13, mean=0.5, spread=2.0),
            "weight": ops.normal(13, mean=1.0, spread=0.3),
            "bias": ops.normal(13),
        },
    )
    eps = ops.constant("rms_norm.eps", 3e-4)
    ops.add(
        "rms_norm",
        lambda input, weight: F.rms_norm(input, (13,), weight, eps),
        {
            "input": ops.normal(3, 5, 13, mean=0.5, spread=2.0),
            "weight": ops.normal(13, mean=1.0, spread=0.3),
        },
    )

    # far tails and zero, then the usual range
    corners = torch.tensor([0.0, 1.0, -1.0, 2.0, -2.0, 0.75, -0.75, 6.0, -6.0, 12.0, -12.0])
    activations = torch.stack([corners, *ops.normal(6, 11, spread=1.5)])
    ops.add("gelu", lambda input: F.gelu(input), {"input": activations})
    ops.add("gelu_tanh", lambda input: F.gelu(input, approximate="tanh"), {"input": activations})
    ops.add("relu2", lambda input: F.relu(input) ** 2, {"input": activations})
    ops.add(
        "swiglu",
        lambda gate, up: F.silu(gate) * up,
        {"gate": activations, "up": ops.normal(7, 11)},
    )

    for op, start in (("rope", 0), ("rope_offset", 5)):
        base = ops.constant(f"{op}.base", 500.0)
        width = int(ops.constant(f"{op}.width", 6))
        ops.add(
            op,
            lambda input, positions: rotate(input, positions, width, base),
            {"input": ops.normal(2, 3, 7, 10)},
            {"positions": torch.arange(start, start + 7)},
        )

    query, key, value = ops.normal(2, 6, 7, 5), ops.normal(2, 3, 7, 5), ops.normal(2, 3, 7, 5)
    for op, causal in (("attention_causal", True), ("attention_bidirectional", False)):
        ops.add(
            op,
            lambda query, key, value: attention(query, key, value, causal),
            {"query": query, "key": key, "value": value},
        )
        pattern = attention_pattern(query.double(), key.double(), causal)
        ops.tensors[f"{op}.pattern"] = pattern.float()
    ops.add(  # longer than a tile of 64, and scores far from zero
        "attention_long",
        lambda query, key, value: attention(query, key, value, causal=True),
        {
            "query": ops.normal(1, 2, 67, 3, spread=2.0),
            "key": ops.normal(1, 1, 67, 3, spread=2.0),
            "value": ops.normal(1, 1, 67, 3),
        },
    )

    targets = ops.integers(13, 11)
    targets[[0, 4, 10]] = -100
    logits = ops.normal(11, 13, spread=2.0)
    ops.add(
        "cross_entropy",
        lambda logits, targets: F.cross_entropy(logits, targets, ignore_index=-100),
        {"logits": logits},
        {"targets": targets},
    )
    rows = F.cross_entropy(logits.double(), targets, ignore_index=-100, reduction="none")
    ops.tensors["cross_entropy.row_losses"] = rows.float()

    ops.add(
        "linear",
        F.linear,
        {"input": ops.normal(2, 5, 7), "weight": ops.normal(9, 7), "bias": ops.normal(9)},
    )
    ids = ops.integers(11, 2, 7)
    ids[0, :3] = 4  # a repeated id collects several gradients
    ops.add(
        "embedding",
        lambda weight, ids: F.embedding(ids, weight),
        {"weight": ops.normal(11, 5)},
        {"ids": ids},
    )

    make_adamw(ops)
    write_tensors(out / "ops.safetensors", ops.tensors)


def make_adamw(ops):
    """Two steps; entry 0 has no gradient, so that decay alone moves it."""
    settings = {
        name: ops.constant(f"adamw.{name}", value)
        for name, value in {
            "learning_rate": 1e-2,
            "beta1": 0.9,
            "beta2": 0.95,
            "eps": 1e-8,
            "weight_decay": 0.1,
        }.items()
    }
    ops.tensors["adamw.parameter_0"] = ops.normal(3, 5)
    parameter = torch.nn.Parameter(ops.tensors["adamw.parameter_0"].double())
    optimizer = torch.optim.AdamW(
        [parameter],
        lr=settings["learning_rate"],
        betas=(settings["beta1"], settings["beta2"]),
        eps=settings["eps"],
        weight_decay=settings["weight_decay"],
    )
    for step in (1, 2):
        gradient = ops.normal(3, 5)
        gradient[0, 0] = 0.0
        parameter.grad = gradient.double()
        optimizer.step()
        state = optimizer.state[parameter]
        ops.tensors[f"adamw.gradient_{step}"] = gradient
        ops.tensors[f"adamw.parameter_{step}"] = parameter.detach().float()
        ops.tensors[f"adamw.first_moment_{step}"] = state["exp_avg"].float()
        ops.tensors[f"adamw.second_moment_{step}"] = state["exp_avg_sq"].float()


# ---------------------------------------------------------------------------------------------
# make
# ---------------------------------------------------------------------------------------------

SOURCE = """\
# Golden fixtures

Reference values that softdict's tests compare with. All of them were computed by PyTorch and
transformers; none by softdict. Written by `scripts/golden.py make`, this page included; to change
a fixture, change the script. Python is needed for that alone: the files are committed.

Versions: {versions}.
On another processor the last bits of the floats may differ.

Letters in shapes: B batch, T time, C width, H heads, G key/value heads, D head size, V vocabulary,
L layers. Every scalar is stored with shape (1,). Ids are I64, all else F32 unless stated.

## Model folders

`config.json`, `generation_config.json` and `model.safetensors` are as `save_pretrained` wrote
them. Weights and biases are drawn from normal(0, 0.3), norm gains from 1 + normal(0, 0.3), the
token ids with seed + 1000. `layer_norm_eps`/`rms_norm_eps` 3e-4, rope base 500.
`expected.safetensors` was computed from the folder as it lies on disk, weights widened to f32, no
dropout:

- `token_ids` ({batch}, {time}), `logits` (B, T, V), `attention` (L, B, H, T, T) after the softmax
- `loss` (1,): mean over the batch of the cross-entropy of token t + 1 at position t < T - 1
- `gradient.<name>` of that loss for every parameter of `model.safetensors`, where the table says so
  (names and shapes as in the file; a tied matrix has one gradient, the sum of both uses)

An untied head is `embed_out.weight` in the files of gpt_neox, `lm_head.weight` in those of llama.

`config.old.json` says the same as `config.json` in the keys of transformers 4 (`rotary_pct`,
`rotary_emb_base`, `rope_theta`, `torch_dtype`); transformers reads it to bit-identical logits.

| folder | seed | holds |
|---|---|---|
{models}
| `curve` | {curve_seed} | start of the training run below; spread 0.2, `layer_norm_eps` 1e-5, rope base 10000, no `expected.safetensors` |

## inspect.safetensors

In `gpt2` and `llama_gqa_untied`, by `scripts/golden_inspect.py` (its head describes every tensor): head scores of a repeated
block, QK and OV circuits, the shares of a logit, and activation patching, from transformers with forward hooks and numpy.

## training_curve.safetensors

{steps} steps of plain PyTorch from the weights in `curve/`: softdict's default block (pre-norm, LayerNorm
and linears with bias, exact GELU of inner width 4C, RoPE over whole heads, untied head without
bias), 2 layers, 2 heads, width 16, vocabulary 13, context {context}, no dropout, f32. AdamW with
constant learning rate 1e-2, betas 0.9 and 0.95, eps 1e-8, decoupled decay 0.1 on matrices and embeddings,
0 on gains and biases; gradients clipped to a global norm of 1 by `clip_grad_norm_` (factor
min(1, 1 / (norm + 1e-6))).

- `inputs`, `targets` ({steps}, {curve_batch}, {context}): the batch of each step
- `losses` ({steps},): before the update of that step; `grad_norms` ({steps},): before clipping
- `final.<name>`: the parameters after the last step
- `greedy_prompt` (5,), `greedy_ids` (20,): continuation by the final weights, without dropping old
  positions; `greedy_margins` (20,): best minus second-best logit of each choice

## ops.safetensors

Single operations, computed in f64 from the stored f32 inputs and rounded to f32 once. Seed
{ops_seed}. Named `<op>.<input>`, then `<op>.output`, `<op>.upstream` (a random gradient of the output)
and `<op>.gradient.<input>`.

| op | inputs, settings | notes |
|---|---|---|
| `layer_norm` | `input`, `weight`, `bias`, `eps` | over the last axis, biased variance |
| `rms_norm` | `input`, `weight`, `eps` | input / sqrt(mean(input²) + eps) · weight |
| `gelu`, `gelu_tanh`, `relu2` | `input` | first row: 0, ±1, ±2, ±0.75, ±6, ±12 |
| `swiglu` | `gate`, `up` | silu(gate) · up |
| `rope`, `rope_offset` | `input` (B, H, T, D), `positions` (T,), `base`, `width` | half split: entry i pairs with i + width/2; entries from `width` on stay; positions start at 0 and at 5 |
| `attention_causal`, `attention_bidirectional` | `query` (B, H, T, D), `key`, `value` (B, G, T, D) | scale 1/√D; query head h reads key/value head h·G/H; `pattern` (B, H, T, T) |
| `attention_long` | same | causal, T = 67, no `pattern` |
| `cross_entropy` | `logits` (N, V), `targets` (N,) | mean over targets other than -100; `row_losses` (N,), 0 where ignored |
| `linear` | `input`, `weight` (out, in), `bias` | |
| `embedding` | `weight` (V, C), `ids` | some ids repeat, some never occur |
| `adamw` | `parameter_0`, `gradient_1`, `gradient_2`, `learning_rate`, `beta1`, `beta2`, `eps`, `weight_decay` | after step n: `parameter_n`, `first_moment_n`, `second_moment_n` |

## Files

| file | bytes | SHA-256 |
|---|---|---|
{files}
"""


def describe(out):
    models = [
        f"| `{name}` | {seed} | {purpose}{'; gradients' if 'gradients' in options else ''}"
        f"{'; `config.old.json`' if 'old_config' in options else ''} |"
        for name, (seed, _, purpose, options) in FIXTURES.items()
    ]
    models += [
        f"| `{name}` | {FIXTURES[source][0]} | weights of `{source}` rounded to {str(dtype)[6:]} |"
        for name, (source, dtype) in HALF_FIXTURES.items()
    ]
    files = [
        f"| {path.relative_to(out)} | {path.stat().st_size} "
        f"| {hashlib.sha256(path.read_bytes()).hexdigest()} |"
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.suffix in (".json", ".safetensors")
    ]
    versions = {
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "safetensors": safetensors.__version__,
        "numpy": numpy.__version__,
    }
    text = SOURCE.format(
        versions=", ".join(f"{name} {version}" for name, version in versions.items()),
        batch=BATCH,
        time=TIME,
        models="\n".join(models),
        curve_seed=CURVE_SEED,
        ops_seed=OPS_SEED,
        steps=CURVE_STEPS,
        curve_batch=CURVE_BATCH,
        context=CURVE_CONTEXT,
        files="\n".join(files),
    )
    (out / "SOURCE.md").write_text(text)


def make(out):
    torch.set_num_threads(1)  # more threads change the order of sums
    torch.use_deterministic_algorithms(True)
    transformers.utils.logging.set_verbosity_warning()
    transformers.utils.logging.disable_progress_bar()
    for name in [*FIXTURES, *HALF_FIXTURES, "curve"]:
        shutil.rmtree(out / name, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    make_models(out)
    make_curve(out)
    make_ops(out)
    describe(out)
    return 0


# ---------------------------------------------------------------------------------------------
# check
# ---------------------------------------------------------------------------------------------


LIBRARIES = ("transformers", "huggingface_hub")


class Complaints(logging.Handler):
    """Collects what transformers and Python warn about while it is entered."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())

    def __enter__(self):
        for library in LIBRARIES:
            logging.getLogger(library).addHandler(self)
        self.caught = warnings.catch_warnings(record=True)
        self.recorded = self.caught.__enter__()
        warnings.simplefilter("always")
        return self

    def __exit__(self, *raised):
        self.messages += [str(warning.message) for warning in self.recorded]
        self.caught.__exit__(*raised)
        for library in LIBRARIES:
            logging.getLogger(library).removeHandler(self)


def check_tokenizer(folder, expected):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if "text" not in expected:
        return []
    text = bytes(expected["text"].tolist()).decode("utf-8")
    want = expected["token_ids"][0].tolist()
    got = tokenizer(text)["input_ids"]
    faults = [] if got == want else [f"{text!r} encodes to {got}, expected {want}"]
    back = tokenizer.decode(want)
    return faults if back == text else [*faults, f"{want} decodes to {back!r}, expected {text!r}"]


def check_model(folder, expected):
    """Returns the faults and the largest difference of a logit."""
    model, loading = AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
    )
    faults = [f"{what}: {sorted(names)}" for what, names in loading.items() if names]
    token_ids = expected["token_ids"].long()
    with torch.no_grad():
        output = model.eval()(token_ids, use_cache=False, output_attentions=True)
    pairs = {"logits": output.logits}
    if "attention" in expected:
        pairs["attention"] = torch.stack(output.attentions)
    differences = {}
    for name, got in pairs.items():
        if got.shape != expected[name].shape:
            want = tuple(expected[name].shape)
            faults.append(f"{name}: shape {tuple(got.shape)}, expected {want}")
            continue
        differences[name] = (got - expected[name].float()).abs().max().item()
        if not differences[name] <= MAX_LOGIT_DIFFERENCE:  # also true for NaN
            faults.append(f"{name}: differs by {differences[name]:.3g}")
    # a bad generation_config.json speaks up only here
    room = AutoConfig.from_pretrained(folder).max_position_embeddings - token_ids.shape[1]
    if room > 0:
        mask = torch.ones_like(token_ids)
        model.generate(token_ids, attention_mask=mask, max_new_tokens=min(room, 3))
    return faults, differences.get("logits", float("nan"))


def check_folder(folder, model_only):
    transformers.utils.logging.warning_once.cache_clear()  # warn again for every folder
    difference = float("nan")
    with Complaints() as complaints:
        try:
            expected = load_file(folder / "expected.safetensors")
            faults = [] if model_only else check_tokenizer(folder, expected)
            more, difference = check_model(folder, expected)
            faults += more
        except Exception as error:  # one broken folder must not hide the others
            faults = [f"{type(error).__name__}: {error}"]
    faults += [f"warning: {message}" for message in complaints.messages]
    return faults, difference


def check(folders, model_only):
    transformers.utils.logging.set_verbosity_warning()
    transformers.utils.logging.disable_progress_bar()
    failed = False
    for folder in folders:
        faults, difference = check_folder(folder, model_only)
        if faults:
            failed = True
            print(f"{folder}: FAILED: {' | '.join(' '.join(fault.split()) for fault in faults)}")
        else:
            print(f"{folder}: ok, largest difference of a logit {difference:.2e}")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    maker = commands.add_parser("make", help="write the fixtures")
    golden = Path(__file__).parent.parent / "tests" / "golden"
    maker.add_argument("--out", type=Path, default=golden)
    checker = commands.add_parser("check", help="open softdict's folders with transformers")
    checker.add_argument("--model-only", action="store_true", help="the folders hold no tokenizer")
    checker.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    if arguments.command == "make":
        return make(arguments.out)
    return check(arguments.folders, arguments.model_only)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Training speed of softdict against PyTorch, alternating, as a ratio of medians.

Needs `cargo build --release` and torch (pip install torch). Run it on an idle machine:

    scripts/bench.py [--work A|B] [--rounds 5] [--steps N] [--compile] [--dtype bf16]

Both programs train the same block on the same work (A: 4 layers, 4 heads, width 128, context 64, batch 12; B: 6, 6, 384, 256,
batch 16; vocabulary 65), forward, backward, clipping and AdamW. softdict's rate is the median of its metrics.jsonl.
"""
import argparse, datetime, json, os, pathlib, platform, statistics, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKS = {
    "A": dict(layers=4, heads=4, width=128, context=64, batch=12),
    "B": dict(layers=6, heads=6, width=384, context=256, batch=16),
}
STEPS = {"A": 300, "B": 12}


def softdict(work, steps, folder):
    """Tokens per second of one run: the median over its lines of progress, the first left out."""
    sets = [f"model.{key}={work[key]}" for key in ("layers", "heads", "width", "context")]
    every = max(1, steps // 10)
    sets += [f"train.batch={work['batch']}", f"train.steps={steps}", f"train.log_every={every}", "train.warmup_steps=1",
             f"train.eval_every={steps}", "data.val_fraction=0", "tokenizer.kind=char"]
    command = [ROOT / "target/release/softdict", "train", folder / "text.txt", "--out", folder / "run", "--overwrite"]
    for value in sets:
        command += ["--set", value]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lines = [json.loads(line) for line in open(folder / "run/metrics.jsonl")]
    rates = [line["tokens_per_second"] for line in lines if line["event"] == "step"][1:]
    return statistics.median(rates)


def pytorch(work, iters, extra):
    command = [sys.executable, ROOT / "scripts/torch_peer.py", "--iters", str(iters)] + extra
    for key, value in work.items():
        command += [f"--{key}", str(value)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", choices=WORKS, default="A")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    args = parser.parse_args()
    work, steps = WORKS[args.work], args.steps or STEPS[args.work]
    extra = ["--dtype", args.dtype] + (["--compile"] if args.compile else [])
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"warning: the machine is not idle (load {load:.1f})", file=sys.stderr)
    ours, theirs, versions = [], [], {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        # 65 different characters, as tinyshakespeare has; what they say does not matter for speed
        characters = [chr(33 + i) for i in range(65)]
        (folder / "text.txt").write_text("".join(characters[(i * i * 31 + i * 7) % 65] for i in range(200_000)) + "".join(characters))
        for _ in range(args.rounds):
            ours.append(softdict(work, steps, folder))
            versions = pytorch(work, max(5, steps // 4), extra)
            theirs.append(versions["tokens_per_second"])
    ratios = [a / b for a, b in zip(ours, theirs)]
    tokens = work["batch"] * work["context"]
    print(json.dumps(dict(
        date=datetime.date.today().isoformat(), work=args.work, rounds=args.rounds, cpu=platform.processor() or platform.machine(),
        threads=os.cpu_count(), torch=versions["torch"], compile=args.compile, dtype=args.dtype,
        softdict_tokens_per_second=round(statistics.median(ours)), pytorch_tokens_per_second=round(statistics.median(theirs)),
        softdict_milliseconds=round(tokens / statistics.median(ours) * 1e3, 2),
        pytorch_milliseconds=round(tokens / statistics.median(theirs) * 1e3, 2),
        ratio=round(statistics.median(ratios), 3), ratios=[round(ratio, 3) for ratio in sorted(ratios)])))


if __name__ == "__main__":
    main()

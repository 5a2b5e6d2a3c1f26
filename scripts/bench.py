#!/usr/bin/env python3
"""Training speed of softdict against PyTorch, alternating, as a ratio of medians.

Needs `cargo build --release` and torch (pip install torch). Run it on an idle machine:

    scripts/bench.py [--work A]... [--rounds 5] [--dtype bf16] [--compile]

Both programs train the same block on the same work (`softdict bench --help` names them), forward, backward, clipping and
AdamW, on random tokens; each figure is the median of a process's steps. One line of JSON a work.
"""
import argparse, datetime, json, os, pathlib, statistics, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SMALL = dict(layers=2, heads=4, width=128, batch=1)
WORKS = {
    "A": dict(layers=4, heads=4, width=128, context=64, batch=12),
    "B": dict(layers=6, heads=6, width=384, context=256, batch=16),
    "C": dict(layers=12, heads=12, width=768, context=1024, batch=1, vocab=50304),
    "D256": dict(SMALL, context=256),
    "D1024": dict(SMALL, context=1024),
    "D4096": dict(SMALL, context=4096),
    "D16384": dict(SMALL, context=16384),
}
# PyTorch's timed steps: about as many seconds as softdict takes
ITERS = {"A": 75, "B": 5, "C": 5, "D256": 200, "D1024": 75, "D4096": 15, "D16384": 5}


def run(command):
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output[output.index("{"):])


def softdict(work, dtype):
    report = run([ROOT / "target/release/softdict", "bench", "--work", work, "--dtype", dtype, "--json"])
    return report | report["training"][0]


def pytorch(work, dtype, extra):
    command = [sys.executable, ROOT / "scripts/torch_peer.py", "--iters", str(ITERS[work]), "--dtype", dtype] + extra
    for key, value in WORKS[work].items():
        command += [f"--{key}", str(value)]
    return run(command)


def compare(work, args):
    extra = ["--compile"] if args.compile else []
    ours, theirs = [], []
    for _ in range(args.rounds):
        ours.append(softdict(work, args.dtype))
        theirs.append(pytorch(work, args.dtype, extra))
    ratios = sorted(b["milliseconds"] / a["milliseconds"] for a, b in zip(ours, theirs))
    median = lambda runs, key: round(statistics.median(run[key] for run in runs), 2)
    print(json.dumps(dict(
        date=datetime.date.today().isoformat(), work=work, dtype=args.dtype, compile=args.compile, rounds=args.rounds,
        cpu=ours[0]["cpu"], threads=ours[0]["threads"], softdict=ours[0]["version"], torch=theirs[0]["torch"],
        softdict_milliseconds=median(ours, "milliseconds"), pytorch_milliseconds=median(theirs, "milliseconds"),
        softdict_gflops=median(ours, "gflops"), pytorch_gflops=median(theirs, "gflops"),
        softdict_mib=median(ours, "peak_mib"), pytorch_mib=median(theirs, "peak_mib"),
        ratio=round(statistics.median(ratios), 3), ratios=[round(ratio, 3) for ratio in ratios])), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", choices=WORKS, action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"warning: the machine is not idle (load {load:.1f})", file=sys.stderr)
    for work in args.work or ["A", "B"]:
        compare(work, args)


if __name__ == "__main__":
    main()

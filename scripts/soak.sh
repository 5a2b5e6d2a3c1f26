#!/usr/bin/env bash
# A long run with checkpoints, evaluations and scores of heads: memory and open files must stay flat.
#   soak.sh [STEPS]     20,000 unless told otherwise
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/target/release:$PATH"
steps=${1:-20000}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

softdict corpus --lines 5000 >text.txt
softdict train text.txt --out run --set train.steps="$steps" --set train.eval_every=100 --set train.checkpoint_every=50 \
    --set train.heads_every=200 --set train.log_every=100 --set model.layers=2 --set model.heads=2 --set model.width=32 \
    --set model.context=32 --set train.batch=8 >out.txt 2>err.txt &
child=$!
: >samples
while kill -0 "$child" 2>/dev/null; do
    sleep 1
    memory=$(sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$child/status" 2>/dev/null || true)
    files=$(ls "/proc/$child/fd" 2>/dev/null | wc -l || true)
    if [[ -n $memory ]]; then echo "$memory $files" >>samples; fi
done
wait "$child" || { tail -n 3 err.txt >&2; exit 1; }
# what the first tenth took while buffers were made, against the rest
awk -v steps="$steps" '
    { memory[NR] = $1; files[NR] = $2 }
    END {
        early = int(NR / 10) + 1
        for (i = 1; i <= NR; i++) {
            if (i <= early) { if (memory[i] > m0) m0 = memory[i]; if (files[i] > f0) f0 = files[i] }
            else { if (memory[i] > m1) m1 = memory[i]; if (files[i] > f1) f1 = files[i] }
        }
        printf "%d steps, %d samples: at most %.1f MiB and %d files open in the first tenth, %.1f MiB and %d after\n",
            steps, NR, m0 / 1024, f0, m1 / 1024, f1
        exit !(NR >= 20 && m1 < 1.1 * m0 + 4096 && f1 <= f0 + 2)
    }' samples

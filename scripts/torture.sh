#!/usr/bin/env bash
# Kills trainings at random moments and looks at what is left: torture.sh [KILLS] [SEED], 200 kills unless told otherwise.
#
# A run saves at every step. It is killed (SIGKILL) again and again, while it starts, tokenizes, trains, saves, switches
# `last` and resumes. After every kill `sample` must load whatever the run has, and what comes out when it is at last let
# through must be the bytes of a run that was never killed.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/target/release:$PATH"
kills=${1:-200}
RANDOM=${2:-1}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

softdict corpus --lines 20000 >text.txt
settings=()
for set in tokenizer.kind=char model.layers=1 model.heads=2 model.width=16 model.context=16 model.dropout=0.1 \
    train.steps=60 train.batch=4 train.warmup_steps=2 train.checkpoint_every=1 train.eval_every=3 \
    train.eval_tokens=200 train.keep_checkpoints=2 train.log_every=1; do
    settings+=(--set "$set")
done

train() { exec softdict train text.txt --out "$1" "${settings[@]}" --threads 1 "${@:2}"; }
# a kill between a run's first checkpoint and `last` leaves a run all the same
is_run() { compgen -G 'run/step-*' >/dev/null; }
fail() { echo "failed after kill $killed: $1" >&2; exit 1; }

killed=0
(train unbroken) >/dev/null 2>&1
# seconds that a whole run takes: kills fall anywhere in it
start=${EPOCHREALTIME/./}
(train measured) >/dev/null 2>&1
whole=$((${EPOCHREALTIME/./} - start))

rounds=0 starts=0 resumes=0 finished=0
while ((killed < kills)); do
    rounds=$((rounds + 1))
    rm -rf run
    while true; do
        how=()
        if is_run; then how=(--resume); fi
        train run "${how[@]}" >out.txt 2>err.txt &
        child=$!
        sleep "$(awk -v u="$((RANDOM * 32768 + RANDOM))" -v w="$whole" 'BEGIN { print u / 1073741824 * w / 1e6 }')"
        if ! kill -KILL "$child" 2>/dev/null; then
            wait "$child" || fail "the run ended by itself: $(tail -n 3 err.txt)"
            finished=$((finished + 1))
            break
        fi
        wait "$child" 2>/dev/null || true
        killed=$((killed + 1))
        if ((${#how[@]})); then resumes=$((resumes + 1)); else starts=$((starts + 1)); fi
        if is_run; then
            softdict sample run --which last --tokens 3 >out.txt 2>err.txt || fail "sample: $(cat err.txt)"
        fi
        if ((killed >= kills)); then
            how=()
            if is_run; then how=(--resume); fi
            (train run "${how[@]}") >out.txt 2>err.txt || fail "the last resume: $(tail -n 3 err.txt)"
            break
        fi
    done
    for file in model.safetensors trainer.safetensors; do
        cmp -s "unbroken/step-000060/$file" "run/step-000060/$file" || fail "$file is not that of the unbroken run"
    done
    litter=$(find run -name '.softdict-*')
    [[ -z $litter ]] || fail "left behind: $litter"
done
echo "$killed kills ($starts of new runs, $resumes of resumed ones) in $rounds runs: every one sampled and ended with the bytes of the unbroken run"

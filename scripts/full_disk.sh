#!/usr/bin/env bash
# A disk that fills up in the middle of a run (a tmpfs of two megabytes; needs the right to mount it): the error names the
# file, the last checkpoint opens, nothing is left behind, and with room again the run goes on.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/target/release:$PATH"
folder=$(mktemp -d)
mount -t tmpfs -o size=2m tmpfs "$folder"
trap 'cd /; umount "$folder"; rm -rf "$folder" "$text"' EXIT
text=$(mktemp)
softdict corpus --lines 500 >"$text"
cd "$folder"

settings=()
for set in tokenizer.kind=char model.layers=2 model.heads=2 model.width=64 model.context=32 train.steps=60 train.batch=4 \
    train.eval_every=5 train.keep_checkpoints=0; do
    settings+=(--set "$set")
done
if told=$(softdict train "$text" --out run "${settings[@]}" 2>&1 >/dev/null); then
    echo "the disk did not fill up" >&2
    exit 1
fi
grep -q 'error: run/step-.*No space left on device' <<<"$told" || { echo "$told" >&2; exit 1; }
litter=$(find run -name '.softdict-*')
[[ -z $litter ]] || { echo "left behind: $litter" >&2; exit 1; }
softdict sample run --which last --tokens 5 >/dev/null 2>&1
mount -o remount,size=64m "$folder"
softdict train --out run --resume >/dev/null 2>&1
echo "$(tail -n 1 <<<"$told") - nothing left behind, the last checkpoint opens, and the run went on with more room"

#!/usr/bin/env bash
# A text of a gigabyte, and one of 70,000 different characters, in bounded memory: large.sh [MEGABYTES]
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/target/release:$PATH"
megabytes=${1:-1024}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

softdict corpus --lines 12000 | head -c 1048576 >piece.txt
for ((i = 0; i < megabytes; i++)); do cat piece.txt; done >large.txt
# every character of the planes that hold most of Unicode, some lines of each
python3 -c '
characters = [chr(c) for c in range(19968, 19968 + 80000) if not 55296 <= c < 57344][:70000]
print("\n".join("".join(characters[at:at + 50]) for at in range(0, 70000, 50)))' >many.txt
small="--set model.layers=1 --set model.heads=2 --set model.width=16 --set model.context=32 --set train.steps=5
    --set train.batch=4 --set train.eval_tokens=2000"

measured() {
    local name=$1
    shift
    # shellcheck disable=SC2086 # the settings are words
    /usr/bin/time -f "%M %e" -o usage.txt softdict train "$@" $small >out.txt 2>err.txt || { tail -n 3 err.txt >&2; exit 1; }
    read -r kilobytes seconds <usage.txt
    vocabulary=$(sed -n 's/.*vocabulary \([0-9,]*\).*/\1/p' err.txt | tail -n 1)
    echo "$name: vocabulary $vocabulary, $((kilobytes / 1024)) MiB at most, $seconds s"
}
measured "$(du -m large.txt | cut -f1) MiB by characters" large.txt --set tokenizer.kind=char --out char
measured "$(du -m large.txt | cut -f1) MiB by BPE" large.txt --set tokenizer.kind=bpe --set tokenizer.vocab_size=1000 --out bpe
measured "70,000 characters" many.txt --set tokenizer.kind=char --out many

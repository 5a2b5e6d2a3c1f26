#!/usr/bin/env bash
# Runs the commands of the README's `sh` blocks one after the other in an empty folder, with the binary in
# target/release. Lines that begin with cargo or git build the program or fetch it, and are left out.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
PATH="$root/target/release:$PATH"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
ln -s "$root/configs" "$folder/configs"
mkdir "$folder/checkpoints"
cp -r "$root/checkpoints/tales-tiny" "$folder/checkpoints/"
cd "$folder"
commands=$(awk '/^```sh$/ {inside=1; next} /^```$/ {inside=0} inside' "$root/README.md" \
    | sed 's/[[:space:]]*#.*$//' | grep -vE '^(cargo|git|cd|$)')
while IFS= read -r command; do
    printf '+ %s\n' "$command"
    if ! bash -c "$command" >out.txt 2>err.txt </dev/null; then
        cat out.txt err.txt
        echo "failed: $command" >&2
        exit 1
    fi
done <<<"$commands"
echo "all README commands ran"

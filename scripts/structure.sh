#!/usr/bin/env bash
# The shape of the code: which crate may depend on which of ours (ARCHITECTURE.md), and no file too long to read.
set -euo pipefail
cd "$(dirname "$0")/.."

allowed() {
    case "$1" in
        files|random|testkit) echo "" ;;
        tokenizer) echo "files" ;;
        corpus) echo "random" ;;
        kernels) echo "random" ;;
        model) echo "kernels random" ;;
        checkpoint) echo "files model" ;;
        trainer) echo "checkpoint files kernels model tokenizer" ;;
        sampler) echo "model random" ;;
        inspect) echo "kernels model random" ;;
        cli) echo "checkpoint corpus files inspect kernels model random sampler tokenizer trainer" ;;
        *) echo "unknown crate $1: add it to scripts/structure.sh and ARCHITECTURE.md" >&2; exit 1 ;;
    esac
}

failed=0
for manifest in crates/*/Cargo.toml; do
    crate=$(basename "$(dirname "$manifest")")
    may=" $(allowed "$crate") "
    uses=$(sed -n '/^\[dependencies\]/,/^\[/p' "$manifest" | sed -n 's/^softdict-\([a-z]*\).*/\1/p')
    for used in $uses; do
        if [[ "$may" != *" $used "* ]]; then
            echo "$manifest: $crate must not depend on $used" >&2
            failed=1
        fi
    done
done

# 400 lines of code and its tests are what one sitting takes
while read -r lines file; do
    if [ "$file" != total ] && [ "$lines" -gt 400 ]; then
        echo "$file has $lines lines: is it one thing?" >&2
        failed=1
    fi
done < <(git ls-files -co --exclude-standard 'crates/*.rs' | xargs wc -l)

if git ls-files -co --exclude-standard 'crates/*.rs' | grep -v '^crates/cli/src/output.rs$' \
    | grep -v -E '/(tests|examples|benches)/' \
    | xargs grep -nE '^[^/]*\b(e?println|e?print)!\(' ; then
    echo "only crates/cli/src/output.rs prints" >&2
    failed=1
fi
exit "$failed"

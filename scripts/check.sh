#!/usr/bin/env bash
# All checks, in the order in which they fail fastest: format, lints, docs, structure, tests, README commands.
#   scripts/check.sh            everything
#   scripts/check.sh --tested   everything but the tests, which have just run
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }

step format
cargo fmt --all --check

step lints
cargo clippy --release --workspace --all-targets --quiet -- -D warnings

step docs
RUSTDOCFLAGS="-D warnings" cargo doc --release --workspace --no-deps --quiet

step structure
scripts/structure.sh

if [ "${1:-}" != --tested ]; then
    step tests
    cargo test --release --workspace
fi

step "README commands"
cargo build --release
scripts/readme.sh

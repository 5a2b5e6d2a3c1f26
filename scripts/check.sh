#!/usr/bin/env bash
# All checks, in the order in which they fail fastest: format, lints, docs, structure, dependencies, tests, README commands.
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

step "licences, duplicates, sources and advisories of dependencies"
if command -v cargo-deny >/dev/null; then
    cargo deny --offline --log-level error check licenses bans sources
    if compgen -G "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs/advisory-db-*" >/dev/null; then
        cargo deny --offline --log-level error check advisories
    else
        echo "no database of advisories (cargo deny fetch): not checked"
    fi
else
    echo "cargo-deny is not installed (cargo install cargo-deny): not checked"
fi

if [ "${1:-}" != --tested ]; then
    step tests
    cargo test --release --workspace
fi

step "README commands"
cargo build --release
scripts/readme.sh

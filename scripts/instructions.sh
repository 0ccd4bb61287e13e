#!/usr/bin/env bash
# Counts the instructions of the hot paths and compares them with bench/instructions/expected.txt; `store` writes that
# file. Needs valgrind.
set -euo pipefail
cd "$(dirname "$0")/.."

type -P valgrind >/dev/null || {
    echo "instructions are not counted: no valgrind on the PATH (on Debian: apt-get install valgrind)" >&2
    exit 0
}
CARGO_TARGET_DIR="$(scripts/target-folder.sh)/instructions"
export CARGO_TARGET_DIR
cargo build --quiet --release --locked --manifest-path bench/instructions/Cargo.toml
exec "$CARGO_TARGET_DIR/release/instructions" "$@"

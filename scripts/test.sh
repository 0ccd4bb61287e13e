#!/usr/bin/env bash
# `make test`: fetches the tests' dependencies, then runs the Rust tests and the Python tests for every change;
# `test.sh merge` runs what `.ci/run` adds, too. Both clean up, also after an interrupt.
#
# One program after the other: two at once take the same time, because together they need more than two processors.
set -euo pipefail
cd "$(dirname "$0")/.."
tier=${1:-test}

MONGOD=$(scripts/mongod.sh)
MONGOSH=$(scripts/mongosh.sh)
PYTHON=$(scripts/python-env.sh)
scripts/node-driver.sh >/dev/null
scripts/browser-tools.sh >/dev/null
scripts/pymongo-suite.sh >/dev/null
DOCWARD_BIN="$(scripts/target-folder.sh)/debug/docward"
export MONGOD MONGOSH
# Most of these tests wait more than they compute.
RUST_TEST_THREADS="${RUST_TEST_THREADS:-$((2 * $(nproc)))}"
export RUST_TEST_THREADS

pytest() { DOCWARD_BIN="$DOCWARD_BIN" "$PYTHON" -m pytest -p no:cacheprovider -rs --numprocesses 3 --dist worksteal "$@"; }

if [[ $tier = test ]]; then
    cargo test --lib --bins --test command_line --test invariants --test operations --test patterns --test protocol --test source
    pytest tests/python/test_transparency.py
    exit
fi

# The training program for releases is built beside the tests.
training_folder="$(scripts/target-folder.sh)/release-build/training"
TRAINING=(--quiet --locked --manifest-path bench/training/Cargo.toml)
nice -n 19 env CARGO_TARGET_DIR="$training_folder" cargo build "${TRAINING[@]}" &
building=$!
# Under `set -e` a trap that fails makes the script fail: the build has ended by then.
trap 'kill "$building" 2>/dev/null || true' EXIT

cargo test

# It works, and none of its messages is rejected.
wait "$building"
CARGO_TARGET_DIR="$training_folder" cargo run "${TRAINING[@]}" -- "$DOCWARD_BIN"

# `make drivers` also has two routers.
pytest tests/python -k "not routers"
